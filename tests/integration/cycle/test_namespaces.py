"""The controller labels namespaces of projects, and admission policies follow the label."""

import json
import subprocess

from tests.support import workloads
from tests.support.controlplane.handles import Api, wait_for
from tests.support.installation import MANIFESTS, Installation

SEEN_S = 90.0
LABEL = "ballast.dev/managed"
PROJECTS = f"{workloads.API}/gpuprojects"
WHOLE = json.dumps(
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "whole"},
        "spec": {
            "containers": [
                {"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
            ]
        },
    }
)


def test_gpus_are_guarded_as_long_as_a_project_lists_the_namespace(api: Api) -> None:
    plane = api.control_plane
    api.kubectl("apply", "--server-side", f"-k{MANIFESTS / 'policies'}")

    def labelled() -> set[str]:
        found = json.loads(api.kubectl("get", "namespaces", "-l", f"{LABEL}=true", "-o", "json"))
        return {each["metadata"]["name"] for each in found["items"]}

    def refusal() -> str:
        try:
            where = f"--namespace={api.namespace}"
            api.kubectl("create", where, "--dry-run=server", "-f-", stdin=WHOLE)
        except subprocess.CalledProcessError as error:
            return str(error.stderr)
        return ""

    plane.admin.post(f"{workloads.API}/gpudepartments", workloads.department("research", 2))
    project = workloads.project("vision", "research", api.namespace, 2)
    project["spec"]["namespaces"].append("later")
    plane.admin.post(PROJECTS, project)
    assert refusal() == ""
    control = Installation(plane).control
    control.start()
    try:
        wait_for(lambda: labelled() == {api.namespace}, SEEN_S, "the label")
        plane.make_namespace("later")
        wait_for(lambda: "later" in labelled(), SEEN_S, "the label on a namespace that came later")
        # Another client removed it.
        api.kubectl("label", "namespace", "later", f"{LABEL}-")
        wait_for(lambda: "later" in labelled(), SEEN_S, "the label again")
        control.kill()
        wait_for(lambda: "came without the gate" in refusal(), SEEN_S, "a guard without programs")
        plane.admin.delete(f"{PROJECTS}/vision")
        control.start()
        wait_for(lambda: not labelled(), SEEN_S, "the labels gone with the project")
        wait_for(lambda: refusal() == "", SEEN_S, "pods that are made as before")
    finally:
        control.kill()
