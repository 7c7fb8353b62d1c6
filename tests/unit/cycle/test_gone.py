"""Deleted objects are forgotten, and nothing is deleted that has changed since it was read."""

import asyncio
from typing import Any
from unittest.mock import AsyncMock, create_autospec

import pytest
from prometheus_client import REGISTRY

from extender.api.events import Removed, Synced, Upserted
from extender.api.kinds import GpuNode, GpuProject
from extender.api.objects import Node, Pod
from extender.api.shutdown import end_task
from extender.cycle import metrics
from extender.cycle.controller import Controller
from extender.cycle.keepers.inventory import InventoryKeeper
from extender.cycle.pods.narrow import Narrowing
from extender.cycle.pods.writer import PodWriter, Release
from extender.cycle.replica import ControlOptions
from extender.cycle.term import EPOCHS_PER_LEADER, Term
from extender.http.claim import read_claim
from extender.kube.client import Client
from extender.kube.election import Leadership, first_transitions
from extender.kube.errors import Conflict, NotFound, NotLeading
from extender.ledger.rows import add_rows
from extender.state.cluster import ClusterState
from tests.support.builders import gpu_node, pod, row, whole


def client_of() -> Any:
    return create_autospec(Client, instance=True)


def state_of(*objects: Any) -> ClusterState:
    state = ClusterState()
    for obj in objects:
        state.apply(Upserted(obj))
    for kind in (Pod, Node):
        state.apply(Synced(kind))
    return state


async def test_a_pod_that_a_patch_does_not_find_is_forgotten() -> None:
    """The watch may never tell of its end: it came by a live read and was gone before the list."""
    ghost = pod("ghost").needs(1000).build()
    state = state_of(ghost, gpu_node("n1", 1).holds(row(ghost, whole(0))).build())
    client = client_of()
    client.strategic_patch.side_effect = NotFound("gone")
    view = state.pod("uid-ghost")
    assert view is not None
    release = Release(view, "n1", 7)
    assert await PodWriter(client, state).release(release, Narrowing(state)) == "gone"
    assert state.pod("uid-ghost") is None
    assert [(stray.row.uid, stray.is_confirmed) for stray in state.rows_to_free()] == [
        ("uid-ghost", True)
    ]


async def test_a_row_whose_pod_a_live_read_finds_is_kept() -> None:
    held = pod("a").needs(1000).bound("n1").version(5).build()
    state = state_of(gpu_node("n1", 1).build())
    state.apply(Removed(Pod, "uid-a", "team-a", "a", "7"))
    client = client_of()
    client.get.return_value = held
    assert not await PodWriter(client, state).is_absent("team-a", "a", "uid-a")


async def test_a_gpu_node_is_deleted_only_as_it_was_looked_at() -> None:
    state = state_of(gpu_node("n1", 1).version(41).build())
    client = client_of()
    client.delete.side_effect = Conflict("a row was written")
    await InventoryKeeper(client, state).keep()
    (call,) = client.delete.call_args_list
    assert call.kwargs == {"uid": "uid-gpu-n1", "resource_version": "41"}
    assert state.gpu_node("n1") is not None


async def test_a_gpu_node_with_rows_outlives_its_node() -> None:
    """A lost node may still run its pods."""
    runs = pod("a").needs(1000).bound("n1").build()
    state = state_of(runs, gpu_node("n1", 1).holds(row(runs, whole(0), "bound")).build())
    client = client_of()
    await InventoryKeeper(client, state).keep()
    client.delete.assert_not_called()


async def test_a_term_that_has_used_its_plan_numbers_ends() -> None:
    client = client_of()
    term = Term(Controller(client, client, ControlOptions("me")), transitions=3)
    term._number = EPOCHS_PER_LEADER - 1
    with pytest.raises(NotLeading, match="plan numbers"):
        async with asyncio.timeout(5):
            await term.run_cycle()
    client.merge_patch.assert_not_called()
    client.strategic_patch.assert_not_called()


async def test_a_new_leader_reads_ledgers_and_pods_before_it_decides() -> None:
    """Its watches may lag behind what the leader before it has written."""
    client = client_of()
    controller = Controller(client, client, ControlOptions("me"))
    read: list[type] = []
    for kind, reflector in controller.reflector_of.items():
        catch_up = AsyncMock(side_effect=lambda kind=kind: read.append(kind))
        reflector.catch_up = catch_up  # type: ignore[method-assign]
    term = Term(controller, transitions=3)
    await term.run_cycle()
    assert set(read) == {GpuNode, Pod}
    await term.run_cycle()
    assert len(read) == 2


async def test_a_replica_that_leads_no_more_withdraws_what_only_a_leader_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = client_of()
    leadership = create_autospec(Leadership, instance=True, transitions=3)
    monkeypatch.setattr(Term, "run", AsyncMock(side_effect=NotLeading("the Lease ran out")))
    gauges = {
        "ballast_control_cut_workloads": metrics.CUT_WORKLOADS,
        "ballast_control_scheduler_away": metrics.SCHEDULER_AWAY,
        "ballast_control_foreign_gpus": metrics.FOREIGN_GPUS.labels("true"),
        "ballast_control_pending_workloads": metrics.PENDING.labels("NoQuota"),
    }
    for gauge in gauges.values():
        gauge.set(7)
    controller = Controller(client, client, ControlOptions("me"))
    with pytest.raises(NotLeading):
        await controller.lead(leadership)
    left = [
        sample
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name in gauges and sample.value
    ]
    assert left == []


@pytest.mark.looptime
async def test_a_term_that_is_cancelled_again_while_one_part_closes_has_closed_the_others() -> None:
    """The election cancels every half second until the term ends."""
    client = client_of()
    controller = Controller(client, client, ControlOptions("me"))
    victim = pod("victim").needs(1000).bound("n1").build()
    controller.state.apply(Upserted(victim))
    term = Term(controller, transitions=3)
    term.run_cycles = asyncio.Event().wait  # type: ignore[assignment]
    term._releaser._tasks.add(asyncio.create_task(slow_to_end()))
    turn = asyncio.create_task(asyncio.Event().wait())
    term._evictor._tasks.add(turn)  # type: ignore[arg-type]
    term._evictor._queued.add("uid-victim")
    controller.state.assume_terminating(["uid-victim"])
    running = asyncio.create_task(term.run())
    await asyncio.sleep(1)
    await end_task(running)
    seen = controller.state.pod("uid-victim")
    assert seen is not None
    assert (turn.cancelled(), seen.is_terminating) == (True, False)


async def slow_to_end() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(60)


def test_series_of_a_deleted_project_are_removed_and_those_of_others_stay() -> None:
    client = client_of()
    controller = Controller(client, client, ControlOptions("me"))
    for project, beneficiary in (("old", "kept"), ("kept", "old"), ("kept", "kept")):
        metrics.EVICTED.labels("Reclaimed", project, beneficiary).inc()
        metrics.SETTLED_EVICTIONS.labels(project, beneficiary, "yes").inc()
        metrics.LOST.labels(project).inc()
        metrics.POD_WAITS.labels(project).observe(1)
    controller.deliver(Removed(GpuProject, "uid-old", "", "old"))
    left = [sample.labels for family in REGISTRY.collect() for sample in family.samples]
    assert [labels for labels in left if "old" in labels.values()] == []
    names = {"reason": "Reclaimed", "project": "kept", "beneficiary": "kept"}
    assert REGISTRY.get_sample_value("ballast_control_evicted_pods_total", names)


def test_plan_numbers_are_read_by_the_extender_and_exact_in_json() -> None:
    newest = (first_transitions() + 10**6) * EPOCHS_PER_LEADER
    assert newest < 2**53
    claim = read_claim(pod("a").needs(1000).released("n1", newest).build())
    assert claim.plan is not None
    assert claim.plan.epoch == newest


def test_rows_of_the_older_and_smaller_plan_numbers_are_taken_over() -> None:
    held = pod("a").needs(1000).build()
    older = first_transitions() * 1_000_000 + 999_999
    ledger = gpu_node("n1", 1).holds(row(held, whole(0), epoch=older)).build()
    newer = row(held, whole(0), epoch=first_transitions() * EPOCHS_PER_LEADER + 1)
    assert add_rows(ledger, [newer]) == (newer,)
