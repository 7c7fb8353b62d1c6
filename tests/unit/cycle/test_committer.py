"""Only pods whose rows are in the ledger go, and a gang's rows are one change."""

import asyncio
from typing import Any
from unittest.mock import create_autospec

import pytest

from extender.api.events import Synced, Upserted
from extender.api.kinds import CardShare
from extender.api.objects import Node, Pod
from extender.api.reasons import Reason, Refused
from extender.cycle.commit.committer import Committer
from extender.cycle.commit.turns import NODES_AT_ONCE, TURN_S, batches
from extender.cycle.evictions.evictor import Evictor
from extender.cycle.pods.releaser import Releaser
from extender.cycle.rows import row_of
from extender.ledger.writer import CommitOutcome, Ledger, RowChange
from extender.policy.plan import Admission, Placement, Plan
from extender.state.cluster import ClusterState
from extender.state.model import WorkloadView
from tests.support.builders import gpu_node, node, pod, project, whole

pytestmark = pytest.mark.looptime

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
        self.write_s = 0.0
        self.ledger: Any = create_autospec(Ledger, instance=True)
        self.ledger.commit.side_effect = self._commit
        self.releaser: Any = create_autospec(Releaser, instance=True)
        self.evictor: Any = create_autospec(Evictor, instance=True)
        self.committer = Committer(self.state, self.ledger, self.releaser, self.evictor)

    async def _commit(self, changes: list[RowChange]) -> CommitOutcome:
        await asyncio.sleep(self.write_s)
        self.changes = changes
        self.written += [each for each in changes if each.rows]
        self.released_at_writes.append(len(self.released))
        refused = Refused(Reason.CARDS_BUSY, "another was faster")
        return CommitOutcome({each.key: refused for each in changes} if self.is_refused else {})

    async def carry_out(self) -> None:
        """A plan in which the gang is placed on both nodes."""
        snapshot = self.state.snapshot(1_000)
        workload = next(each for each in snapshot.workloads.values() if each.is_group)
        placements = tuple(
            Placement(each, f"n{at}", (CardShare(0, 1000, 16_000),))
            for at, each in enumerate(workload.pods, 1)
        )
        plan = Plan(admissions=[Admission(workload, placements, "reserved")])
        await self.committer.carry_out(plan, snapshot, EPOCH)

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


class Reclaim(Desk):
    """One pod after another waits for victims, each on a node of its own; one has a free place."""

    def __init__(self, n_waiting: int = 3 * NODES_AT_ONCE) -> None:
        super().__init__()
        self.n_waiting = n_waiting
        names = [f"w{at}" for at in range(n_waiting)]
        for name in (*names, "free"):
            self.state.apply(Upserted(pod(name).needs(1000).build()))

    async def cycle(self, *, has_free: bool = True) -> None:
        """The same plan as in the last one: nothing has landed in this model."""
        self.committer.begin()
        snapshot = self.state.snapshot(1_000)
        single = {
            each.pods[0].name: each for each in snapshot.workloads.values() if len(each.pods) == 1
        }
        plan = Plan(
            admissions=[
                Admission(
                    single[name],
                    (Placement(single[name].pods[0], f"node-of-{name}", tuple(whole(0))),),
                    "reserved" if name == "free" else "nominated",
                )
                for name in single
                if has_free or name != "free"
            ]
        )
        await self.committer.carry_out(plan, snapshot, EPOCH)

    @property
    def n_nominated(self) -> int:
        """How many pods that wait for victims had their rows written."""
        return sum(
            row.state == "nominated"
            for change in self.written
            for rows in change.rows.values()
            for row in rows
        )


async def test_rows_for_victims_are_left_out_once_the_turn_is_over() -> None:
    desk = Reclaim()
    desk.write_s = 1.5 * TURN_S
    await desk.cycle()
    assert desk.released == ["free"]
    assert desk.n_nominated == NODES_AT_ONCE
    (call,) = desk.evictor.start.call_args_list
    assert len(call.args[2]) == desk.n_waiting - NODES_AT_ONCE
    assert desk.committer.pause_s == pytest.approx(1.5 * TURN_S)


async def test_between_two_turns_free_places_only_are_written() -> None:
    desk = Reclaim()
    desk.write_s = 1.5 * TURN_S
    await desk.cycle()
    await desk.cycle()
    assert desk.released == ["free", "free"]
    assert desk.n_nominated == NODES_AT_ONCE
    await asyncio.sleep(desk.committer.pause_s)
    await desk.cycle()
    assert desk.n_nominated == 2 * NODES_AT_ONCE


async def test_a_turn_that_took_no_time_is_followed_by_another_at_once() -> None:
    desk = Reclaim()
    await desk.cycle(has_free=False)
    assert desk.committer.pause_s == float("inf")
    assert desk.committer.begin()
    assert desk.n_nominated == desk.n_waiting


async def test_a_cycle_goes_on_while_rows_are_tidied_slowly_and_has_no_turn() -> None:
    desk = Reclaim()
    desk.write_s = 10.0
    began = asyncio.get_running_loop().time()
    await desk.committer.tidy(RowChange("tidy", bound={"n1": ("uid",)}))
    assert asyncio.get_running_loop().time() - began < 0.1
    assert not desk.committer.begin()
    assert 0 < desk.committer.pause_s < 1
    await asyncio.sleep(2 * desk.write_s)
    assert [each.key for each in desk.changes] == ["tidy"]
    assert desk.committer.begin()


async def test_rows_are_tidied_before_the_cycle_looks_where_that_is_quick() -> None:
    desk = Reclaim()
    desk.write_s = 0.01
    await desk.committer.tidy(RowChange("tidy", bound={"n1": ("uid",)}))
    assert [each.key for each in desk.changes] == ["tidy"]


async def test_rows_are_no_longer_tidied_when_the_term_ends() -> None:
    desk = Reclaim()
    desk.write_s = 10.0
    await desk.committer.tidy(RowChange("tidy", bound={"n1": ("uid",)}))
    await desk.committer.close()
    await asyncio.sleep(2 * desk.write_s)
    assert desk.changes == []


def test_changes_of_one_node_are_in_one_batch() -> None:
    changes = [
        RowChange(f"{node_ix} {at}", frees={f"n{node_ix}": ()})
        for at in range(2)
        for node_ix in range(2 * NODES_AT_ONCE)
    ]
    found = list(batches(changes))
    assert [len(batch) for batch in found] == [2 * NODES_AT_ONCE] * 2
    assert sorted(each.key for batch in found for each in batch) == sorted(
        each.key for each in changes
    )


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
    made = row_of(workload, placement, state="reserved", epoch=EPOCH)
    assert (made.namespace, made.project) == ("team-a", "research")


def test_a_row_says_what_kubelet_does_when_a_container_of_its_pod_has_ended() -> None:
    state = ClusterState()
    state.apply(Upserted(pod("a").needs(1000).restarts("OnFailure").build()))
    (workload,) = state.snapshot(1_000).workloads.values()
    placement = Placement(workload.pods[0], "n1", tuple(whole(0)))
    made = row_of(workload, placement, state="reserved", epoch=EPOCH)
    assert made.restart_policy == "OnFailure"


def test_a_row_says_whether_its_pod_may_be_evicted() -> None:
    for is_inference in (False, True):
        workload = workload_of(is_inference=is_inference)
        placement = Placement(workload.pods[0], "n1", tuple(whole(0)))
        made = row_of(workload, placement, state="reserved", epoch=EPOCH)
        assert made.non_preemptible is is_inference
