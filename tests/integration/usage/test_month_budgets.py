"""A project that has used its GPU-hours of the month, on a real control plane."""

import asyncio
import time
from typing import Any

import pytest

from extender.usage.integral import day_of
from tests.integration.cycle.two_projects import Scene
from tests.support import workloads
from tests.support.auditor import Auditor
from tests.support.controlplane.admin import ApiRefusedError
from tests.support.controlplane.handles import Cluster

HOUR = 3_600_000
PERIOD_S = 2.0


def record(project: str, gpu_hours: int) -> dict[str, Any]:
    """So much was used today."""
    day = day_of(int(time.time()))
    held = [gpu_hours * HOUR, *[0] * 23]
    line = {"user": "", "nodePool": "default", "model": "A100", "held": held, "lost": [0] * 24}
    return {
        "apiVersion": "ballast.dev/v1alpha1",
        "kind": "GpuUsage",
        "metadata": {
            "name": f"{day}.project.{project}",
            "labels": {"ballast.dev/day": day, "ballast.dev/month": day[:7]},
        },
        "spec": {"account": "Project", "name": project, "day": day, "lines": [line],
                 "countedTo": int(time.time()) - 30},
    }  # fmt: skip


class Budgeted:
    """The scene, with a budget for team-a."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def set_budget(self, hours: int) -> None:
        self.scene.set_budget("team-a", hours)

    def condition(self) -> tuple[str, str]:
        status = self.scene.get("gpuprojects/team-a").get("status", {})
        found = [each for each in status.get("conditions", ()) if each["type"] == "WithinBudget"]
        return (found[0]["status"], found[0]["reason"]) if found else ("", "")

    def month(self) -> dict[str, Any]:
        (pool,) = self.scene.get("gpuprojects/team-a")["status"]["nodePools"]
        found: dict[str, Any] = pool["month"]
        return found

    def n_bound(self) -> int:
        pods = self.scene.admin.get("/api/v1/namespaces/team-a/pods")["items"]
        return sum(bool(each["spec"].get("nodeName")) for each in pods)


async def test_budget_holds_through_a_change_of_leader_and_ends_when_it_is_raised(
    cluster: Cluster, audited: Auditor
) -> None:
    cluster.control_plane.admin.post(f"{workloads.API}/gpuusages", record("team-a", 5))
    async with Scene.open(cluster, n_nodes=2, cards=2, usage_s=PERIOD_S) as scene:
        told = Budgeted(scene)
        told.set_budget(4)
        await scene.until(lambda: told.condition() == ("False", "OverBudget"), "the condition")
        assert told.month()["month"] == day_of(int(time.time()))[:7]
        assert float(told.month()["gpuHours"]) >= 5
        other = scene.installation.another_control("other")
        await asyncio.to_thread(other.start)
        try:
            # It has a quota of 2, and 4 GPUs are free.
            scene.submit_job("team-a", "train", 3, 1000)
            await scene.until_bound("team-a", 2)
            await scene.until(
                lambda: any(reason == "OverBudget" for reason, _ in scene.events("team-a")),
                "an event that says why",
            )
            await asyncio.to_thread(scene.installation.control.kill)
            scene.submit_job("team-b", "other", 1, 1000)
            await scene.until_bound("team-b", 1)
            assert (told.n_bound(), told.condition()) == (2, ("False", "OverBudget"))
            told.set_budget(1000)
            await scene.until_bound("team-a", 3)
            await scene.until(lambda: told.condition() == ("True", "WithinBudget"), "the condition")
            # While there is a controller that still reports what has changed.
            await audited.finish()
        finally:
            other.kill()


def test_budget_that_is_no_number_of_hours_is_refused(cluster: Cluster) -> None:
    admin = cluster.control_plane.admin
    admin.post(f"{workloads.API}/gpudepartments", workloads.department("research", 4))
    body = workloads.project("team-a", "research", "team-a", 2)
    for wrong, said in ((-1, "should be greater than or equal to 0"), ("many", "integer")):
        body["spec"]["nodePools"][0]["gpu"]["gpuHoursPerMonth"] = wrong
        with pytest.raises(ApiRefusedError, match=said):
            admin.post(f"{workloads.API}/gpuprojects", body)
