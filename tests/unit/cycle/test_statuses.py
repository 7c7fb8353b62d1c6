"""Content of statuses, and transition times of their conditions."""

import pytest

from extender.api.kinds import (
    GpuDepartment,
    GpuNodePool,
    GpuNodePoolSpec,
    GpuPodGroupStatus,
    GpuProject,
    GpuProjectSpec,
    QueueSummary,
)
from extender.api.objects import Condition, ObjectMeta
from extender.api.reasons import Reason, Refused
from extender.api.schema import MAX_TEXT_OF
from extender.cycle.reports.conditions import SCHEDULED, VALID, condition, observed
from extender.cycle.reports.group_status import ended_status, group_status
from extender.cycle.reports.queue_status import (
    PodCounts,
    over_quota,
    queue_status,
    shares_of,
    validity,
    why_empty,
    why_without_pods,
)
from extender.cycle.reports.seen import Seen
from extender.policy.decide import decide
from extender.policy.plan import Plan, QueueShare, Settings
from extender.state.model import GroupView, PodState, PodView, WorkloadView
from extender.state.nodes import NodeTable
from extender.state.problems import Problem
from extender.state.snapshot import Snapshot
from extender.state.workloads.staleness import STALE
from tests.support.snapshots import Cluster

LONG_AGO = "2020-01-01T00:00:00Z"


def workload(*states: PodState, **facts: object) -> WorkloadView:
    pods = tuple(
        PodView(uid=f"u{ix}", namespace="ns", name=f"p{ix}", state=state)
        for ix, state in enumerate(states)
    )
    made: dict[str, object] = {"min_member": len(states), "project": "team"} | facts
    return WorkloadView(key="ns/g", namespace="ns", name="g", is_group=True, pods=pods, **made)  # type: ignore[arg-type]


def reason_of(status: GpuPodGroupStatus, kind: str = SCHEDULED) -> str:
    return next((each.reason for each in status.conditions if each.type == kind), "")


# -- conditions ------------------------------------------------------------------------------


def test_a_condition_that_stays_keeps_its_time() -> None:
    before = [Condition(type=VALID, status="True", last_transition_time=LONG_AGO)]
    assert condition(VALID, True, Reason.ACCEPTED, "", before).last_transition_time == LONG_AGO
    changed = condition(VALID, False, Reason.UNKNOWN_REFERENCE, "", before)
    assert changed.last_transition_time not in (None, LONG_AGO)


def test_a_message_is_never_too_long_for_the_api_server() -> None:
    """A group of a thousand pods may name a thousand users, and the message names them all."""
    told = condition(SCHEDULED, False, Reason.INVALID_REQUEST, "x" * 70_000, [])
    assert len(told.message) == MAX_TEXT_OF["message"]


def test_all_problems_of_an_object_stand_in_one_condition() -> None:
    problems = [
        Problem("GpuProject", "p", "InvalidFigures", "a figure"),
        Problem("GpuProject", "p", "UnknownReference", "a name"),
    ]
    (told,) = validity(problems, [])
    assert (told.status, told.reason, told.message) == (
        "False",
        "InvalidFigures",
        "a figure; a name",
    )
    (mended,) = validity([], [told])
    assert (mended.status, mended.reason) == ("True", "Accepted")


@pytest.mark.parametrize(
    ("selector", "said"),
    [
        ({"gpu": "H1000"}, "no GPU node has the label gpu=H1000 (they have A100, H100)"),
        ({"zone": "a"}, "no GPU node has the label zone=a"),
        ({"gpu": "H100", "rack": "1"}, "no GPU node has all labels of its nodeSelector"),
        (
            {"gpu": "A100"},
            "those that its nodeSelector selects are in node pool big, whose name comes first",
        ),
    ],
)
def test_a_node_pool_without_a_node_is_told_why(selector: dict[str, str], said: str) -> None:
    pool = GpuNodePool(metadata=ObjectMeta(name="p"), spec=GpuNodePoolSpec(node_selector=selector))
    labels = [{"gpu": "A100", "rack": "1"}, {"gpu": "H100", "rack": "2"}, {}]
    note = why_empty(pool, labels, ["big", "default", "default"])
    assert note == f"it has no node: {said}"
    (told,) = validity([], [], note)
    assert (told.status, told.reason, told.message) == ("True", "Accepted", note)
    assert not why_empty(pool, [], [])


def test_a_project_without_namespaces_is_told_that_it_has_no_pods() -> None:
    named = ObjectMeta(name="p")
    told = why_without_pods(GpuProject(metadata=named, spec=GpuProjectSpec(department="d")))
    assert told == "it lists no namespace, so no pod belongs to it"
    spec = GpuProjectSpec(department="d", namespaces=["n"])
    assert not why_without_pods(GpuProject(metadata=named, spec=spec))
    assert not why_without_pods(GpuDepartment(metadata=named))


# -- queues ----------------------------------------------------------------------------------


def test_cpu_and_memory_are_reported_where_they_are_counted() -> None:
    share = QueueShare(
        quota=(4000, 64_000, 1 << 50), fair_share=(4000, 8000, 0), allocated=(1000, 2000, 512)
    )
    status = queue_status((("default", share),), PodCounts(1, 2), [], {})
    (use,) = status.node_pools
    assert (use.fair_share, use.allocated) == ("4", "1")
    assert use.cpu.allocated == "2000m"  # type: ignore[union-attr]
    assert not use.memory
    assert (status.gpu.pending_pods, status.gpu.running_pods) == (1, 2)


def test_a_queue_above_its_fair_share_says_so() -> None:
    share = QueueShare(quota=(1000, 0, 0), fair_share=(2000, 0, 0), allocated=(3000, 0, 0))
    assert queue_status((("default", share),), PodCounts(), [], {}).state == "OverFairShare"


def test_summary_tells_limit_borrowed_and_waiting() -> None:
    share = QueueShare(
        quota=(2000, 0, 0), limit=(6000, 0, 0), allocated=(3500, 0, 0), requested=(9000, 0, 0)
    )
    free = QueueShare(quota=(4000, 0, 0), allocated=(1000, 0, 0), requested=(1000, 0, 0))
    pods = PodCounts(waiting_milli=5500)
    summary = queue_status((("a", share),), pods, [], {}).gpu
    assert (summary.limit, summary.borrowed, summary.waiting) == ("6", "1.5", "5.5")
    both = queue_status((("a", share), ("b", free)), pods, [], {}).gpu
    assert (both.limit, both.borrowed, both.requested) == ("unlimited", "1.5", "10")
    assert queue_status((), PodCounts(), [], {}).gpu.limit == "unlimited"


@pytest.mark.parametrize(
    ("allocated", "told"),
    [
        (1000, ("False", "WithinQuota")),
        (1500, ("True", "AboveQuota")),
        (2500, ("True", "AboveFairShare")),
    ],
)
def test_queue_above_its_quota_has_a_condition(allocated: int, told: tuple[str, str]) -> None:
    share = QueueShare(quota=(1000, 0, 0), fair_share=(2000, 0, 0), allocated=(allocated, 0, 0))
    found = over_quota(queue_status((("default", share),), PodCounts(), [], {}), [])
    assert (found.type, found.status, found.reason) == ("OverQuota", *told)
    later = over_quota(queue_status((("default", share),), PodCounts(), [], {}), [found])
    assert later == found


def test_quota_that_is_unused_in_another_pool_covers_nothing_that_is_borrowed() -> None:
    idle = QueueShare(quota=(4000, 0, 0))
    borrows = QueueShare(quota=(1000, 0, 0), fair_share=(2000, 0, 0), allocated=(2000, 0, 0))
    within = QueueShare(quota=(4000, 0, 0), fair_share=(3000, 0, 0), allocated=(4000, 0, 0))
    for beside in (idle, within):
        status = queue_status((("a", beside), ("b", borrows)), PodCounts(), [], {})
        assert (status.gpu.borrowed, status.state) == ("1", "OverQuota")
        assert over_quota(status, []).status == "True"
    assert queue_status((("a", idle), ("b", within)), PodCounts(), [], {}).state == "InQuota"


def test_conditions_are_of_a_generation_and_keep_their_time() -> None:
    before = [Condition(type=VALID, status="True", last_transition_time=LONG_AGO)]
    (told,) = observed(validity([], before), 7)
    assert (told.observed_generation, told.last_transition_time) == (7, LONG_AGO)


# -- pod groups ------------------------------------------------------------------------------


def test_a_group_is_scheduled_when_its_minimum_is_bound() -> None:
    status = group_status(
        workload("bound", "bound", "gated", min_member=2), None, GpuPodGroupStatus()
    )
    assert (status.scheduled, status.pending, reason_of(status)) == (2, 1, "Scheduled")
    assert status.project == "team"


def test_a_group_whose_sub_groups_lack_their_minimums_is_not_scheduled() -> None:
    tree = GroupView(
        name="",
        min_member=2,
        min_groups=2,
        children=(GroupView(name="a", min_member=1), GroupView(name="b", min_member=1)),
    )
    group = workload("bound", "bound", min_member=2, tree=tree)
    status = group_status(group, None, GpuPodGroupStatus())
    assert reason_of(status) == "WaitingForTurn"


def test_a_group_that_waits_says_why() -> None:
    wait = Refused(Reason.OVER_LIMIT, "the project has 4 of 4")
    status = group_status(workload("gated", "gated"), wait, GpuPodGroupStatus())
    assert status.conditions[0].message.startswith("the project has 4 of 4. It starts when")
    assert reason_of(status) == "OverLimit"


def test_a_group_whose_priority_class_does_not_exist_says_so() -> None:
    status = group_status(workload("gated", unknown_class="fast"), None, GpuPodGroupStatus())
    told = next(each for each in status.conditions if each.type == VALID)
    assert (told.status, told.reason) == ("False", "UnknownReference")
    assert told.message.startswith("there is no priority class fast: until it exists")
    known = group_status(workload("gated"), None, status)
    assert reason_of(known, VALID) == ""


def test_a_stale_group_tells_a_later_leader_since_when() -> None:
    stale = workload("bound", "gated", stale_since=1_577_836_800, stale_grace_s=60)
    status = group_status(stale, None, GpuPodGroupStatus())
    told = next(each for each in status.conditions if each.type == STALE)
    assert (told.status, told.last_transition_time) == ("True", LONG_AGO)
    whole = group_status(workload("bound", "bound"), None, status)
    assert reason_of(whole, STALE) == ""


def test_a_group_that_ended_has_no_pods_and_keeps_its_last_word() -> None:
    status = group_status(workload("bound", "bound"), None, GpuPodGroupStatus())
    ended = ended_status(status)
    assert (ended.pending, ended.scheduled, ended.running) == (0, 0, 0)
    assert ended.conditions == status.conditions


# -- what is looked at -----------------------------------------------------------------------


def snapshot(*workloads: WorkloadView) -> Snapshot:
    return Snapshot(0, NodeTable(), {}, {}, {view.key: view for view in workloads})


def test_only_what_changed_is_looked_at_again() -> None:
    seen, view = Seen(), workload("bound", "gated")
    assert seen.look(snapshot(view), Plan()) == ["ns/g"]
    assert seen.look(snapshot(view), Plan()) == []
    waits = {"ns/g": Refused(Reason.OVER_LIMIT)}
    assert seen.look(snapshot(view), Plan(waits=waits)) == ["ns/g"]
    assert seen.look(snapshot(view), Plan(waits=waits)) == []
    assert seen.look(snapshot(workload("bound", "bound")), Plan()) == ["ns/g"]
    assert seen.look(snapshot(), Plan()) == ["ns/g"]
    assert seen.look(snapshot(), Plan()) == []


def test_pods_of_queues_are_counted_as_they_change() -> None:
    seen = Seen()

    def counted() -> tuple[int, int]:
        counts = seen.pods_of_queues(snapshot())["team"]
        return counts.pending, counts.bound

    seen.look(snapshot(workload("bound", "gated")), Plan())
    assert counted() == (1, 1)
    seen.look(snapshot(workload("bound", "bound")), Plan())
    assert counted() == (0, 2)
    seen.look(snapshot(), Plan())
    assert counted() == (0, 0)


def two_pools() -> Cluster:
    """Pools a, with cards of 16 GiB, and b, with cards of 8 GiB; the project holds all of a."""
    cluster = Cluster()
    cluster.node("n0", gpus=2, pool="a", mib=16384)
    cluster.node("n1", gpus=2, pool="b", mib=8192)
    cluster.department("d")
    cluster.project("team", department="d")
    cluster.job("run", "team", 2, on="n0", pools=("a",))
    return cluster


def summary_of(cluster: Cluster, queue: str = "team", seen: Seen | None = None) -> QueueSummary:
    taken, seen = cluster.snapshot(), seen or Seen()
    plan = decide(cluster.snapshot(), Settings(stages=()))
    seen.look(taken, plan)
    return queue_status(
        shares_of(plan.shares)[queue], seen.pods_of_queues(taken)[queue], [], {}
    ).gpu


@pytest.mark.parametrize("queue", ["team", "department/d"])
def test_work_that_may_use_several_pools_waits_once(queue: str) -> None:
    cluster = two_pools()
    cluster.job("wait", "team", 4, pools=("a", "b"))
    cluster.job("memory", "team", mib=8192, pools=("a", "b"))
    summary = summary_of(cluster, queue)
    assert (summary.allocated, summary.waiting, summary.requested) == ("2", "4.5", "6.5")


def test_pods_that_wait_for_victims_wait_and_those_that_end_do_not() -> None:
    cluster = two_pools()
    cluster.job("ends", "team", 2, on="n1", terminating=True, pools=("b",))
    cluster.job("next", "team", 1, on="n1", state="nominated", cards=[0], pools=("b",))
    summary = summary_of(cluster)
    assert (summary.allocated, summary.waiting, summary.requested) == ("4", "1", "3")


def test_requests_in_mib_are_counted_anew_where_cards_change() -> None:
    cluster, seen = two_pools(), Seen()
    cluster.job("memory", "team", mib=8192, pools=("a",))
    assert summary_of(cluster, seen=seen).waiting == "0.5"
    cluster.node("n2", gpus=1, pool="a", mib=8192)
    assert summary_of(cluster, seen=seen).waiting == "1"
