"""Pods are released only once their rows are in the ledger; a gang's rows are one change."""

from typing import Any
from unittest.mock import create_autospec

from extender.api.events import Synced, Upserted
from extender.api.kinds import CardShare
from extender.api.objects import Node, Pod
from extender.api.reasons import Reason, Refused
from extender.cycle.commit.committer import Committer
from extender.cycle.evictions.evictor import Evictor
from extender.cycle.pods.releaser import Releaser
from extender.cycle.rows import placed_row
from extender.kube.errors import KubeError, Unavailable
from extender.ledger.writer import CommitOutcome, Ledger, RowChange
from extender.policy.plan import Admission, Move, Placement, Plan
from extender.state.cluster import ClusterState
from extender.state.model import WorkloadView
from tests.support.builders import gpu_node, node, pod, project, whole
from tests.unit.state.test_replicas import replica

EPOCH = 7


class Desk:
    """A committer with two pods of a gang to place, and a ledger that refuses what it is told."""

    def __init__(self) -> None:
        self.state = ClusterState()
        members = [pod(name).needs(1000).gang("g", 2).build() for name in ("a", "b")]
        self.state.apply(Upserted(project("research").build()))
        for each in members:
            self.state.apply(Upserted(each))
        for name in ("n1", "n2"):
            self.state.apply(Upserted(node(name).gpus(1).build()))
            self.state.apply(Upserted(gpu_node(name, 1).build()))
        for kind in (Pod, Node):
            self.state.apply(Synced(kind))
        self.changes: list[RowChange] = []
        #: Changes with rows, in order, and how many pods were released when each write began.
        self.written: list[RowChange] = []
        self.released_at_writes: list[int] = []
        self.is_refused = False
        #: Changes that the API server does not write.
        self.failing: frozenset[str] = frozenset()
        self.ledger: Any = create_autospec(Ledger, instance=True)
        self.ledger.commit.side_effect = self._commit
        self.releaser: Any = create_autospec(Releaser, instance=True)
        self.evictor: Any = create_autospec(Evictor, instance=True)
        self.committer = Committer(self.state, self.ledger, self.releaser, self.evictor)

    async def _commit(self, changes: list[RowChange]) -> CommitOutcome:
        self.changes = changes
        self.written += [each for each in changes if each.rows]
        self.released_at_writes.append(len(self.released))
        refused = Refused(Reason.CARDS_BUSY, "another was faster")
        return CommitOutcome(
            {each.key: refused for each in changes} if self.is_refused else {},
            {each.key: Unavailable("no") for each in changes if each.key in self.failing},
        )

    async def carry_out(self) -> KubeError | None:
        """A plan in which the gang is placed on both nodes."""
        snapshot = self.state.snapshot(1_000)
        workload = next(each for each in snapshot.workloads.values() if each.is_group)
        placements = tuple(
            Placement(each, f"n{at}", (CardShare(0, 1000, 16_000),))
            for at, each in enumerate(workload.pods, 1)
        )
        plan = Plan(admissions=[Admission(workload, placements, "reserved")])
        return await self.committer.carry_out(plan, snapshot, EPOCH)

    @property
    def released(self) -> list[str]:
        """Names of the pods that were queued for release."""
        return [
            each.pod.name for call in self.releaser.start.call_args_list for each in call.args[1]
        ]


async def test_a_gang_whose_rows_are_written_is_released_whole() -> None:
    desk = Desk()
    await desk.carry_out()
    assert desk.released == ["a", "b"]


async def test_no_pod_is_released_whose_rows_were_refused() -> None:
    desk = Desk()
    desk.is_refused = True
    await desk.carry_out()
    assert desk.released == []


async def test_a_plan_has_failed_if_none_of_its_rows_could_be_written() -> None:
    desk = Desk()
    desk.failing = frozenset({"team-a/g reserved"})
    assert isinstance(await desk.carry_out(), Unavailable)
    assert desk.released == []
    desk.failing = frozenset()
    assert await desk.carry_out() is None
    desk.is_refused = True
    assert await desk.carry_out() is None


async def test_the_rows_of_a_gang_are_one_change() -> None:
    desk = Desk()
    await desk.carry_out()
    (change,) = [each for each in desk.changes if each.rows]
    assert {at: [each.name for each in rows] for at, rows in change.rows.items()} == {
        "n1": ["a"],
        "n2": ["b"],
    }


async def test_work_on_free_places_is_released_before_rows_of_work_that_waits_for_victims() -> None:
    desk = Desk()
    desk.state.apply(Upserted(pod("free").needs(1000).build()))
    desk.state.apply(Upserted(gpu_node("n3", 1).build()))
    snapshot = desk.state.snapshot(1_000)
    workloads = {len(each.pods): each for each in snapshot.workloads.values()}
    waiting, free = workloads[2], workloads[1]
    places = tuple(
        Placement(each, f"n{at}", tuple(whole(0))) for at, each in enumerate(waiting.pods, 1)
    )
    plan = Plan(
        admissions=[
            Admission(waiting, places[:1], "nominated"),
            Admission(waiting, places[1:], "reserved"),
            Admission(free, (Placement(free.pods[0], "n3", tuple(whole(0))),), "reserved"),
        ]
    )
    await desk.committer.carry_out(plan, snapshot, EPOCH)
    assert [sorted(each.rows) for each in desk.written] == [["n3"], ["n1"], ["n2"]]
    assert desk.released_at_writes == [0, 1]


async def test_places_of_a_gang_that_moves_for_no_other_are_one_change_with_its_new_ones() -> None:
    """A stale gang that fits elsewhere as a whole: one pod moves, and one starts."""
    desk = Desk()
    runs = pod("r").needs(1000).gang("h", 2).bound("n1").build()
    waits = pod("w").needs(1000).gang("h", 2).build()
    for each in (runs, waits):
        desk.state.apply(Upserted(each))
    snapshot = desk.state.snapshot(1_000)
    gang = snapshot.workloads["team-a/h"]
    of = {each.name: each for each in gang.pods}
    seat = Placement(of["w"], "n2", tuple(whole(0)))
    place = Placement(of["r"], "n2", tuple(whole(1)))
    plan = Plan(
        admissions=[Admission(gang, (seat,), "nominated")],
        moves=[Move(place, gang.key, Reason.MOVED, "")],
    )
    await desk.committer.carry_out(plan, snapshot, EPOCH)
    (change,) = desk.written
    assert sorted(each.name for each in change.rows["n2"]) == ["r", "w"]
    desk.is_refused = True
    await desk.committer.carry_out(plan, snapshot, EPOCH)
    assert desk.evictor.start.call_args.args[2] == {gang.key}


def workload_of(**fields: Any) -> WorkloadView:
    """The workload of one pod in namespace team-a, which is of project research."""
    made = pod("a").needs(1000)
    if fields.get("is_inference"):
        made = made.kind("inference")
    state = ClusterState()
    state.apply(Upserted(project("research").namespaces("team-a").build()))
    state.apply(Upserted(made.build()))
    (workload,) = state.snapshot(1_000).workloads.values()
    return workload


def test_a_row_is_charged_to_the_project_of_its_pod_and_not_to_the_namespace() -> None:
    workload = workload_of()
    placement = Placement(workload.pods[0], "n1", tuple(whole(0)))
    made = placed_row(workload, placement, state="reserved", epoch=EPOCH)
    assert (made.namespace, made.project) == ("team-a", "research")


def test_a_row_says_what_kubelet_does_when_a_container_of_its_pod_has_ended() -> None:
    state = ClusterState()
    state.apply(Upserted(pod("a").needs(1000).restarts("OnFailure").build()))
    (workload,) = state.snapshot(1_000).workloads.values()
    placement = Placement(workload.pods[0], "n1", tuple(whole(0)))
    made = placed_row(workload, placement, state="reserved", epoch=EPOCH)
    assert made.restart_policy == "OnFailure"


def test_a_row_says_whether_the_owner_of_its_pod_states_a_floor() -> None:
    state = ClusterState()
    state.apply(Upserted(replica("a").build()))
    (workload,) = state.snapshot(1_000).workloads.values()
    placement = Placement(workload.pods[0], "n1", tuple(whole(0)))
    made = placed_row(workload, placement, state="reserved", epoch=EPOCH)
    assert (made.has_floor, made.non_preemptible) == (True, False)


def test_a_row_says_whether_its_pod_may_be_evicted() -> None:
    for is_inference in (False, True):
        workload = workload_of(is_inference=is_inference)
        placement = Placement(workload.pods[0], "n1", tuple(whole(0)))
        made = placed_row(workload, placement, state="reserved", epoch=EPOCH)
        assert made.non_preemptible is is_inference
