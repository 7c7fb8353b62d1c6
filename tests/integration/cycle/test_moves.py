"""Moves that a leader left unfinished: the next one completes them, or frees their rows."""

import asyncio
import time
from typing import Any

from extender.api.kinds import CardShare, MoveHold, Row
from extender.kube.resources import GPU_NODES, PODS
from tests.integration.cycle.two_projects import Scene


async def keep_place(scene: Scene, pod: dict[str, Any], node: str, card: int) -> None:
    """As the controller does before it evicts a pod that is to be moved."""
    meta, (owner,) = pod["metadata"], pod["metadata"]["ownerReferences"]
    row = Row(
        uid=meta["uid"],
        namespace=meta["namespace"],
        name=meta["name"],
        project=meta["namespace"],
        cards=[CardShare(card, 1000, 81920)],
        state="nominated",
        epoch=1,
        reserved_at=int(time.time()),
        move=MoveHold(owner=owner["uid"], cpu_milli=100, memory_mib=64),
    )
    known = await scene.client.get(GPU_NODES, node)
    patch = {
        "metadata": {"resourceVersion": known.metadata.resource_version},
        "spec": {"rows": [*known.spec.rows, row]},
    }
    await scene.client.merge_patch(GPU_NODES, node, patch)


def pods_of(scene: Scene, project: str) -> list[dict[str, Any]]:
    items = scene.admin.get(f"/api/v1/namespaces/{project}/pods")["items"]
    return [each for each in items if each["status"].get("phase") not in ("Succeeded", "Failed")]


def tell_moved(scene: Scene, pod: dict[str, Any]) -> None:
    """The event with which the controller explains the eviction."""
    meta = pod["metadata"]
    about = {"kind": "Pod", "name": meta["name"], "namespace": meta["namespace"]}
    event = {
        "metadata": {"name": f"{meta['name']}.moved", "namespace": meta["namespace"]},
        "regarding": about | {"uid": meta["uid"]},
        "reason": "Moved",
        "type": "Warning",
        "action": "Moved",
        "note": "moved",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "ballast-controller",
        "reportingInstance": "test",
    }
    scene.admin.post(f"/apis/events.k8s.io/v1/namespaces/{meta['namespace']}/events", event)


async def test_successor_of_a_moved_pod_gets_the_place_that_is_kept_for_it(scene: Scene) -> None:
    scene.submit_job("team-a", "mover", 1, 1000, stop_s=2)
    await scene.until_bound("team-a", 1)
    (old,) = pods_of(scene, "team-a")
    here = old["spec"]["nodeName"]
    there = next(f"gpu-node-{at:04}" for at in range(2) if f"gpu-node-{at:04}" != here)
    tell_moved(scene, old)
    # The controller is stopped, so that it does not find a place for a pod that stays.
    await asyncio.to_thread(scene.installation.control.end)
    await keep_place(scene, old, there, 1)
    meta = old["metadata"]
    await scene.client.evict(meta["namespace"], meta["name"], uid=meta["uid"])
    await asyncio.to_thread(scene.installation.control.start)

    def place() -> list[tuple[str, str]]:
        return [
            (pod["spec"]["nodeName"], pod["metadata"]["annotations"]["ballast.dev/cards"])
            for pod in pods_of(scene, "team-a")
            if pod["metadata"]["uid"] != meta["uid"] and pod["spec"].get("nodeName")
        ]

    await scene.until(lambda: place() == [(there, "1:1000:81920")], f"the place on {there}")


async def test_place_kept_for_a_pod_that_was_never_evicted_is_freed(scene: Scene) -> None:
    scene.submit_job("team-a", "stayer", 1, 1000)
    await scene.until_bound("team-a", 1)
    (pod,) = pods_of(scene, "team-a")
    here = pod["spec"]["nodeName"]
    there = next(f"gpu-node-{at:04}" for at in range(2) if f"gpu-node-{at:04}" != here)
    await keep_place(scene, pod, there, 0)

    def rows() -> list[str]:
        return [
            row["state"] for each in scene.get("gpunodes")["items"] for row in each["spec"]["rows"]
        ]

    await scene.until(lambda: rows() in (["reserved"], ["bound"]), "the pod's own row and no other")
    live = await scene.client.get(PODS, pod["metadata"]["name"], "team-a")
    assert live.metadata.uid == pod["metadata"]["uid"]
