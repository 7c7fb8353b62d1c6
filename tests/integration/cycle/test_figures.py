"""Metrics of projects while one reclaims GPUs that the other borrowed."""

import asyncio

from prometheus_client.parser import text_string_to_metric_families

from extender.policy.preemption.lost_work import RESTART_S
from tests.integration.cycle.two_projects import Scene
from tests.support.auditor import Auditor
from tests.support.controlplane.handles import Cluster


def figures(scene: Scene, **labels: str) -> dict[str, float]:
    """By name without `ballast_`, the sums of the samples that have these labels."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(scene.metrics()):
        for sample in family.samples:
            if labels.items() <= sample.labels.items():
                name = sample.name.removeprefix("ballast_")
                found[name] = found.get(name, 0) + sample.value
    return found


def gpus(scene: Scene, queue: str) -> dict[str, float]:
    named = figures(scene, queue=queue, node_pool="default").items()
    return {name[len("queue_") : -len("_gpus")]: value for name, value in named if "_gpus" in name}


async def test_a_project_that_borrows_and_gives_back_is_told_in_figures(
    cluster: Cluster, audited: Auditor
) -> None:
    async with Scene.open(cluster, n_nodes=2, cards=2) as scene:
        scene.submit_job("team-a", "loan", 4, 1000)
        await scene.until_bound("team-a", 4)
        loan = {"quota": 2, "fair_share": 4, "requested": 4, "owed": 4, "held": 4, "borrowed": 2}
        await scene.until(lambda: loan.items() <= gpus(scene, "team-a").items(), f"{loan}")
        assert gpus(scene, "department/research")["held"] == 4
        name = "control_pod_wait_seconds_count"
        await scene.until(lambda: figures(scene, project="team-a").get(name) == 4, "four waits")

        scene.submit_job("team-b", "owner", 2, 1000)
        await scene.until_bound("team-b", 2)
        own = {"quota": 2, "requested": 2, "owed": 2, "held": 2, "borrowed": 0}
        await scene.until(lambda: own.items() <= gpus(scene, "team-b").items(), f"{own}")
        evicted = {"reason": "Reclaimed", "project": "team-a", "beneficiary": "team-b"}
        name = "control_evicted_pods_total"
        await scene.until(lambda: figures(scene, **evicted).get(name) == 2, "two evictions")
        lost = await asyncio.to_thread(figures, scene, project="team-a")
        assert lost["control_lost_gpu_seconds_total"] >= 2 * RESTART_S
        # The Job makes its pods again, which wait now.
        name = "queue_pending_workloads"
        await scene.until(
            lambda: figures(scene, queue="team-a").get(name, 0) > 0, "waits of team-a"
        )
        await audited.finish()
