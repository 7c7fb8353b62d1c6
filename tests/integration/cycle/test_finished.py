"""Gangs with two sub-groups that only their pods state, from the first pod to the last."""

from typing import Any

from extender.api import names
from extender.kube.resources import PODS
from tests.integration.cycle.two_projects import DONE_S, Scene
from tests.support import workloads
from tests.support.sight import until


def submit_role(scene: Scene, role: str, n_pods: int) -> None:
    """A Job of one role of the gang `train`: a driver and three workers."""
    labels = {names.LABEL_SUB_GROUP: role}
    body = workloads.job(role, "team-a", n_pods, 1000, group="train", labels=labels)
    notes: dict[str, Any] = body["spec"]["template"]["metadata"]["annotations"]
    notes[names.ANNOTATION_MIN_MEMBER] = "4"
    notes[names.ANNOTATION_SUB_GROUPS] = "driver=1,workers=3"
    scene.admin.post("/apis/batch/v1/namespaces/team-a/jobs", body)


async def succeed(scene: Scene, role: str) -> None:
    """The role's pods that run end well, as a kubelet would tell."""
    for pod in (await scene.client.list_all(PODS, namespace="team-a")).items:
        if pod.metadata.label(names.LABEL_SUB_GROUP) == role:
            body = {"status": {"phase": "Succeeded"}}
            name = pod.metadata.name
            await scene.client.merge_patch(
                PODS, name, body, namespace="team-a", subresource="status"
            )


async def test_driver_that_is_made_again_does_not_wait_for_workers_that_are_done(
    scene: Scene,
) -> None:
    submit_role(scene, "workers", 3)
    await scene.until(
        lambda: bool(scene.get("namespaces/team-a/gpupodgroups")["items"]), "the GpuPodGroup"
    )
    assert (await scene.look("team-a")).bound == set()
    submit_role(scene, "driver", 1)
    await scene.until_bound("team-a", 4)
    await succeed(scene, "workers")
    await scene.until_bound("team-a", 1)
    (before,) = (await scene.look("team-a")).bound
    scene.cluster.kubectl(
        "delete", "pod", "-l", f"{names.LABEL_SUB_GROUP}=driver", "-n", "team-a", "--wait=false"
    )

    async def is_again() -> bool:
        bound = (await scene.look("team-a")).bound
        return len(bound) == 1 and before not in bound

    await until(is_again, DONE_S, lambda: "the driver made again and bound")
