"""`ballast preflight` against a real API server."""

import json
import os
import subprocess
import sys

from tests.support import workloads
from tests.support.controlplane.handles import Api
from tests.support.controlplane.nodes import GpuNodes
from tests.support.installation import MANIFESTS

PRESENT = {"nvidia.com/gpu.present": "true"}


def preflight(kubeconfig: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "extender", "preflight", f"--kubeconfig={kubeconfig}", *options],
        env=os.environ | {"NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def checks(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    return {each["check"]: each["state"] for each in json.loads(done.stdout)["checks"]}


def test_cluster_is_looked_at_and_a_failure_is_the_exit_code(api: Api) -> None:
    admin = api.control_plane.admin
    done = preflight(api.kubeconfig, "-o", "json")
    assert done.returncode == 1, done.stderr
    assert checks(done)["GPU nodes"] == "FAIL"
    nodes = [*GpuNodes(1, labels=PRESENT).manifests(), *GpuNodes(1, 0, prefix="p").manifests()]
    for each in nodes:
        each["status"]["nodeInfo"] = _info("containerd://2.1.0")
    admin.post_all("/api/v1/nodes", nodes)
    job = workloads.job("filler", api.namespace, 1, 1000)
    admin.post(f"/apis/batch/v1/namespaces/{api.namespace}/jobs", job)
    api.kubectl("apply", "--server-side", f"-k{MANIFESTS / 'policies'}")
    done = preflight(api.kubeconfig, "-o", "json", "-n", api.namespace)
    assert checks(done)["Jobs and evictions"] == "WARN"
    assert "FAIL" not in checks(done).values(), done.stdout
    assert done.returncode == 0, done.stderr
    table = preflight(api.kubeconfig, "-n", api.namespace).stdout
    assert f"{api.namespace}/filler" in table
    assert "OK" in table


def test_a_descheduler_is_found_in_its_namespace(api: Api) -> None:
    admin = api.control_plane.admin
    name = f"descheduler-{api.namespace}"
    api.control_plane.make_namespace(name)
    path = f"/api/v1/namespaces/{name}/configmaps"
    policy = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\n"
    admin.post(path, {"metadata": {"name": "of-another"}, "data": {"a": "b"}})
    admin.post(path, {"metadata": {"name": "policy"}, "data": {"policy.yaml": policy}})
    done = preflight(api.kubeconfig, "-o", "json")
    (found,) = (e for e in json.loads(done.stdout)["checks"] if e["check"] == "descheduler")
    assert found["state"] == "WARN"
    assert found["found"].startswith(f"ConfigMap {name}/policy ")


def test_a_webhook_that_can_stop_the_controller_is_found(api: Api) -> None:
    configurations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["leases"]}
    asked = {
        "name": "rules.example.com",
        "rules": [rule],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ballast-system"}},
    }
    api.control_plane.admin.post(
        configurations, {"metadata": {"name": "rules"}, "webhooks": [asked]}
    )
    try:
        done = preflight(api.kubeconfig, "-o", "json")
    finally:
        api.control_plane.admin.delete(f"{configurations}/rules")
    (found,) = (e for e in json.loads(done.stdout)["checks"] if e["check"] == "other webhooks")
    assert (found["state"], found["found"].partition(":")[0]) == ("WARN", "rules")


def test_login_without_rights_is_told_what_it_lacks(api: Api) -> None:
    done = preflight(api.control_plane.kubeconfig_for("nobody-special", ()), "-o", "json")
    assert done.returncode == 1, done.stderr
    found = checks(done)
    assert (found["rights to install"], found["read access"]) == ("FAIL", "WARN")
    assert "create customresourcedefinitions" in done.stdout


def test_no_api_server_is_one_sentence(api: Api) -> None:
    done = preflight("/does/not/exist")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def _info(runtime: str) -> dict[str, str]:
    empty = ("architecture", "bootID", "kernelVersion", "kubeProxyVersion", "kubeletVersion")
    more = ("machineID", "operatingSystem", "osImage", "systemUUID")
    return dict.fromkeys((*empty, *more), "") | {"containerRuntimeVersion": runtime}
