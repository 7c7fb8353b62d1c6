"""Gangs of Kubernetes' own run as gangs of Ballast, beside a kube-scheduler that has them too.

The feature gates of groups are on in kube-apiserver and kube-scheduler: 1.36 has PodGroups as an
alpha API, 1.37, where it is built, as a beta one. In 1.36 the Job controller makes PodGroups, too.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from extender.api import names
from tests.integration.cycle.two_projects import Scene
from tests.integration.manifests.test_versions import other_release
from tests.integration.webhooks.conftest import CONFIGURATIONS
from tests.support import workloads
from tests.support.controlplane.admin import ApiRefusedError
from tests.support.controlplane.builder import KUBERNETES_VERSION, OTHER_PROGRAMS
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import Cluster, run_kubectl
from tests.support.installation import MANIFESTS, install
from tests.support.session.used_rights import remember_uses
from tests.support.webhook_config import is_admitting, register_webhooks

PINNED = KUBERNETES_VERSION.rpartition(".")[0]
API = {PINNED: "v1alpha2", "1.37": "v1beta1"}
GATES = {
    PINNED: "GenericWorkload=true,GangScheduling=true,WorkloadAwarePreemption=true,"
    "WorkloadWithJob=true,TopologyAwareWorkloadScheduling=true",
    "1.37": "GenericWorkload=true,TopologyAwareWorkloadScheduling=true",
}
POLICIES = MANIFESTS / "policies"
pytestmark = [
    pytest.mark.controlplane,
    pytest.mark.asyncio(loop_scope="module"),
]


def grouped_plane(release: str) -> ControlPlane:
    """A control plane of that release that knows PodGroups and schedules them as gangs."""
    gates = f"--feature-gates={GATES[release]}"
    flags = {
        "kube-apiserver": (gates, f"--runtime-config=scheduling.k8s.io/{API[release]}=true"),
        "kube-scheduler": (gates,),
    }
    if release == PINNED:
        return ControlPlane(flags=flags | {"kube-controller-manager": (gates,)})
    return other_release(release, flags)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=sorted(API))
async def scene(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Scene]:
    """Everything running with the webhooks, on a control plane with native groups."""
    certificates = tmp_path_factory.mktemp("certs")
    with grouped_plane(request.param) as plane:
        install(plane)
        plane.start_kwok()
        async with Scene.open(Cluster(plane, "default", None), n_nodes=2, cards=8) as scene:
            webhooks = scene.installation.webhooks(certificates)
            webhooks.start()
            register_webhooks(plane.admin, webhooks.port, (certificates / "ca.crt").read_bytes())
            await scene.until(lambda: is_admitting(plane.admin, "team-a"), "a pod with the gate")
            try:
                yield scene
            finally:
                webhooks.end()
                remember_uses(request.config, plane.logs)


def member(name: str, group: str) -> dict[str, Any]:
    """A pod as a user of native groups writes it: nothing of ours, one card."""
    pod = workloads.bare_pod(name, "team-a", 1000, gated=False)
    one = {"nvidia.com/gpu": "1"}
    pod["spec"]["containers"][0]["resources"] = {"requests": one, "limits": one}
    del pod["spec"]["schedulerName"]
    if group:
        pod["spec"]["schedulingGroup"] = {"podGroupName": group}
    return pod


def make_group(scene: Scene, name: str, min_count: int, level: str = "") -> None:
    """A PodGroup that is disrupted as one, its pods near one another where `level` is given."""
    is_pinned = is_served(scene, API[PINNED])
    folder = f"/apis/scheduling.k8s.io/{API[PINNED if is_pinned else '1.37']}"
    spec: dict[str, Any] = {
        "schedulingPolicy": {"gang": {"minCount": min_count}},
        "disruptionMode": "PodGroup" if is_pinned else {"all": {}},
    }
    if level:
        spec["schedulingConstraints"] = {"topology": [{"key": level}]}
    body = {
        "apiVersion": folder.removeprefix("/apis/"),
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": spec,
    }
    scene.admin.post(f"{folder}/namespaces/team-a/podgroups", body)


def is_served(scene: Scene, version: str) -> bool:
    listed = scene.admin.get("/apis/scheduling.k8s.io")["versions"]
    return any(each["version"] == version for each in listed)


def create(scene: Scene, pod: dict[str, Any]) -> Any:
    return scene.admin.post("/api/v1/namespaces/team-a/pods", pod)


async def test_native_gang_is_placed_as_one_of_ours(scene: Scene) -> None:
    with pytest.raises(ApiRefusedError, match="create it before its pods"):
        create(scene, member("early", "absent"))
    make_group(scene, "train", 2)
    first = create(scene, member("first", "train"))
    assert "schedulingGroup" not in first["spec"]
    assert first["metadata"]["labels"][names.LABEL_POD_GROUP] == "train"
    await scene.until_decided(2)
    assert not (await scene.look("team-a")).rows, "a part of the gang holds cards"
    create(scene, member("second", "train"))
    await scene.until_bound("team-a", 2)
    seen = await scene.look("team-a")
    assert seen.rows.keys() == seen.bound
    assert seen.n_rows == 2
    create(scene, member("third", "train"))
    await scene.until_bound("team-a", 3)


async def test_gang_that_the_job_controller_makes_is_placed(scene: Scene) -> None:
    if not is_served(scene, API[PINNED]):
        pytest.skip(f"of Kubernetes 1.37, {' and '.join(OTHER_PROGRAMS)} are built only")
    body = workloads.job("native", "team-b", 3, 1000)
    body["spec"]["completionMode"] = "Indexed"
    body["spec"]["template"]["spec"] = member("", "")["spec"]
    scene.admin.post("/apis/batch/v1/namespaces/team-b/jobs", body)
    await scene.until_bound("team-b", 3)
    groups = f"/apis/scheduling.k8s.io/{API[PINNED]}/namespaces/team-b/podgroups"
    (made,) = scene.admin.get(groups)["items"]
    pods = scene.admin.get("/api/v1/namespaces/team-b/pods")["items"]
    sizes = {pod["metadata"]["annotations"][names.ANNOTATION_MIN_MEMBER] for pod in pods}
    assert sizes == {str(made["spec"]["schedulingPolicy"]["gang"]["minCount"])} == {"3"}
    assert "schedulingGroup" not in json.dumps([pod["spec"] for pod in pods])


async def test_topology_key_of_a_native_group_keeps_its_pods_near(scene: Scene) -> None:
    level = "kubernetes.io/hostname"
    spec = {"levels": [{"nodeLabel": level}]}
    body = {"apiVersion": "ballast.dev/v1alpha1", "kind": "GpuTopology", "spec": spec}
    scene.admin.post(f"{workloads.API}/gputopologies", body | {"metadata": {"name": "hosts"}})
    make_group(scene, "near", 2, level)
    path = "/api/v1/namespaces/team-a/pods"
    for name in ("near-0", "near-1"):
        made = create(scene, member(name, "near"))
        assert made["metadata"]["annotations"][names.ANNOTATION_TOPOLOGY_REQUIRED] == level

    def places() -> list[str]:
        pods = [scene.admin.get(f"{path}/{name}") for name in ("near-0", "near-1")]
        return [pod["spec"].get("nodeName", "") for pod in pods]

    await scene.until(lambda: all(places()), "both pods bound")
    assert len(set(places())) == 1


async def test_pod_that_the_webhook_did_not_see_keeps_no_native_group(scene: Scene) -> None:
    """Its author wrote everything else that the webhook writes."""
    scene.admin.delete(f"{CONFIGURATIONS}/ballast-webhooks")
    run_kubectl(scene.plane, "apply", "--server-side", "-k", str(POLICIES))
    pod = workloads.bare_pod("forged", "default", 1000)

    def refusal() -> str:
        try:
            scene.admin.post("/api/v1/namespaces/default/pods?dryRun=All", pod)
        except ApiRefusedError as error:
            return str(error)
        return ""

    pod["spec"]["schedulingGroup"] = {"podGroupName": "train"}
    await scene.until(lambda: "spec.schedulingGroup is set" in refusal(), "the policy in force")
    del pod["spec"]["schedulingGroup"]
    assert refusal() == ""
