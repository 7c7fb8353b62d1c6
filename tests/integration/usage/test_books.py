"""GpuUsages on a real control plane, compared with an integral over etcd's revisions."""

import asyncio
import time
from collections import Counter
from typing import Any

from click.testing import CliRunner

from extender.cli.past.report import report
from extender.usage.books import KEPT_DAYS
from extender.usage.integral import DAY_S, day_of
from tests.integration.cycle.two_projects import PROJECTS, Scene
from tests.support import workloads
from tests.support.auditor import Auditor
from tests.support.auditor.usage import Slot, UsageIntegral
from tests.support.controlplane.handles import Cluster
from tests.support.installation import Program

PERIOD_S = 2.0


def old_record(age_days: int) -> dict[str, Any]:
    day = day_of(int(time.time()) - age_days * DAY_S)
    return {
        "apiVersion": "ballast.dev/v1alpha1",
        "kind": "GpuUsage",
        "metadata": {
            "name": f"{day}.project.old",
            "labels": {"ballast.dev/day": day, "ballast.dev/month": day[:7]},
        },
        "spec": {"account": "Project", "name": "old", "day": day},
    }


class Books:
    """What the API has."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def specs(self) -> list[Any]:
        return [each["spec"] for each in self._scene.get("gpuusages")["items"]]

    def stamps(self, account: str) -> dict[str, int]:
        """Up to when it was counted, by name."""
        found: dict[str, int] = {}
        for spec in self.specs():
            if spec["account"] == account:
                found[spec["name"]] = max(found.get(spec["name"], 0), spec.get("countedTo", 0))
        return found

    def are_whole(self, since: float) -> bool:
        """Whether the accounts that hold GPUs are all counted to one moment after `since`."""
        stamps = {
            self.stamps("Project").get("team-a", 0),
            self.stamps("NodePool").get("default", 0),
        }
        return len(stamps) == 1 and min(stamps) > since

    def held(self) -> "Counter[Slot]":
        sums: Counter[Slot] = Counter()
        for spec in self.specs():
            for line in spec.get("lines", ()) if spec["account"] == "Project" else ():
                for hour, amount in enumerate(line["held"]):
                    key = (spec["name"], line["user"], line["nodePool"], line["model"])
                    sums[*key, spec["day"], hour] += amount
        return sums

    def over_quota(self, project: str) -> int:
        return sum(
            sum(over["held"])
            for spec in self.specs()
            for over in spec.get("overQuota", ())
            if (spec["account"], spec["name"]) == ("Project", project)
        )

    def lost(self, project: str) -> int:
        lines = (line for spec in self.specs() if spec["name"] == project for line in spec["lines"])
        return sum(sum(line["lost"]) for line in lines)


async def test_the_books_agree_to_the_unit_with_an_integral_over_etcd(
    cluster: Cluster, audited: Auditor
) -> None:
    integral = UsageIntegral()
    audited.checker.listeners.append(integral.observe)
    for age in (KEPT_DAYS + 1, KEPT_DAYS - 1):
        cluster.control_plane.admin.post(f"{workloads.API}/gpuusages", old_record(age))
    async with Scene.open(cluster, n_nodes=2, cards=2, usage_s=PERIOD_S) as scene:
        books = Books(scene)
        other = scene.installation.another_control("other")
        await asyncio.to_thread(other.start)
        try:
            await _run_work(scene, books)
            # While there is a controller that still reports what has changed.
            await audited.finish()
            stopped = time.time()
            await scene.until(lambda: has_stopped(other, books, stopped), "all to be counted")
        finally:
            other.kill()
        await audited.catch_up()
        stamps = books.stamps("Project")
        expected = integral.held(stamps)
        assert integral.n_ended >= 6
        assert books.held() == expected
        assert {slot[:2] for slot in expected} == {
            ("team-a", "ann"), ("team-a", "bo"), ("team-b", "")
        }  # fmt: skip
        for project in PROJECTS:
            over = integral.over_quota(project, 2000, stamps[project])
            assert books.over_quota(project) == over
            assert (over > 0) == (project == "team-a")
        assert books.lost("team-a") > 0
        assert [name for name in books.stamps("Project") if name == "old"] == ["old"]
        assert len([spec for spec in books.specs() if spec["name"] == "old"]) == 1
        result = await asyncio.to_thread(_report, cluster)
        assert "sum of the projects = what the node pools held" in result


def has_stopped(control: Program, books: Books, since: float) -> bool:
    """Stop the controller if that is between two bookings; whether it was."""
    control.freeze()
    if books.are_whole(since):
        return True
    control.thaw()
    return False


async def _run_work(scene: Scene, books: Books) -> None:
    """Fractions and whole GPUs of users, a loan that is taken back, and a leader that dies."""
    scene.submit_job("team-a", "halves", 2, 500, labels={"ballast.dev/user": "ann"})
    scene.submit_job("team-a", "loan", 3, 1000, labels={"ballast.dev/user": "bo"})
    await scene.until_bound("team-a", 5)
    scene.submit_job("team-b", "owner", 2, 1000)
    await scene.until_bound("team-b", 2)
    await scene.until(lambda: books.lost("team-a") > 0, "the first leader to book an eviction")
    await asyncio.to_thread(scene.installation.control.kill)
    jobs = "/apis/batch/v1/namespaces/team-b/jobs/owner?propagationPolicy=Background"
    await asyncio.to_thread(scene.admin.delete, jobs)
    await scene.until_bound("team-a", 5)
    jobs = "/apis/batch/v1/namespaces/team-a/jobs/halves?propagationPolicy=Background"
    await asyncio.to_thread(scene.admin.delete, jobs)
    await scene.until_bound("team-a", 3)


def _report(cluster: Cluster) -> str:
    """What the command says of this month, with an administrator's rights."""
    arguments = ["usage", "--by", "project,user", "--kubeconfig", cluster.kubeconfig]
    result = CliRunner().invoke(report, arguments)
    assert result.exit_code == 0, result.output
    return result.stderr
