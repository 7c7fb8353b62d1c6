"""Ways out: how many decisions they take, and the answer once time is up."""

import pytest
from msgspec.structs import replace

from extender.policy.plan import Plan, Stage
from extender.view.picture import Picture, starts
from extender.view.ways_out import Trial, ways_out
from tests.support.snapshots import Cluster


def full_cluster() -> Cluster:
    """A node of 8 that project a holds, in jobs of several priorities; one more job waits."""
    cluster = Cluster()
    cluster.node("n0", gpus=8)
    cluster.project("a", quota=8)
    cluster.project("b", quota=4)
    for number, priority in enumerate((40, 50, 60, 75)):
        cluster.job(f"run-{number}", "a", gpus=1, pods=2, on="n0", priority=priority)
    return cluster


@pytest.fixture
def n_decisions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each decision."""
    counted: list[int] = []
    decided = Picture.decided

    def count(picture: Picture, stages: list[Stage] | None = None) -> Plan:
        counted.append(1)
        return decided(picture, stages)

    monkeypatch.setattr(Picture, "decided", count)
    return counted


def trial(cluster: Cluster, tries: int = 1000) -> Trial:
    """Of the job `wait`; it is late after so many looks at the clock."""
    picture = Picture(cluster.snapshot())
    looks = iter(range(10_000))
    return Trial(picture, picture.snapshot.workloads["ns/wait"], lambda: next(looks) >= tries)


@pytest.mark.parametrize("priority", [10, 40, 45, 59, 74])
def test_the_priority_of_a_way_out_is_the_least_that_starts_it(priority: int) -> None:
    cluster = full_cluster()
    cluster.job("wait", "a", gpus=1, pods=5, priority=priority)
    asked = trial(cluster)
    changes = [each.change for each in ways_out(asked)[0] if "priority" in each.change]

    def is_enough(number: int) -> bool:
        changed = asked.picture.changed(workloads=[replace(asked.workload, priority=number)])
        return starts(changed.plan, asked.workload)

    least = next(number for number in range(priority + 1, 126) if is_enough(number))
    assert changes == [f"its priority is {least} or more"]


def test_only_priorities_that_pass_other_work_cost_a_decision(n_decisions: list[int]) -> None:
    """Halving between 11 and 125 would take seven."""
    cluster = full_cluster()
    cluster.job("wait", "a", gpus=1, pods=5, priority=10)
    asked = trial(cluster)
    assert asked.picture.plan.waits
    n_decisions.clear()
    ways_out(asked)
    n_quota_and_pool = 1
    assert len(n_decisions) <= 4 + n_quota_and_pool


def test_what_was_not_tried_for_want_of_time_is_said() -> None:
    cluster = full_cluster()
    cluster.job("wait", "a", gpus=1, pods=5, priority=10)
    found, not_tried = ways_out(trial(cluster, tries=0))
    assert found == []
    # It has one node pool, and no budget: these kinds are none for it.
    assert not_tried == ["fewer pods", "more priority"]


def test_a_search_that_runs_out_of_time_tells_the_best_that_it_found() -> None:
    """With minMember 1 it starts, too; the greatest with which it does is not known then."""
    cluster = Cluster()
    cluster.node("n0", gpus=8)
    cluster.project("a", quota=8)
    cluster.job("wait", "a", gpus=1, pods=12)
    in_time, _ = ways_out(trial(cluster))
    late, not_tried = ways_out(trial(cluster, tries=1))
    assert in_time[0].change == "8 pods or fewer must start together"
    assert late[0].change == "its pods may start one by one"
    assert "fewer pods" not in not_tried
