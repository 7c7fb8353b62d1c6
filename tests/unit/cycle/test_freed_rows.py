"""Freed rows leave the ledger with the next write of their node, and the model at once."""

import asyncio
from typing import Any
from unittest.mock import create_autospec

import pytest
from msgspec import convert
from msgspec.structs import replace

from extender.api.events import Removed, Synced, Upserted
from extender.api.kinds import GpuNode, GpuNodeSpec, Row
from extender.api.objects import Node, Pod
from extender.cycle.commit.committer import Committer
from extender.cycle.controller import Controller
from extender.cycle.evictions.evictor import Evictor
from extender.cycle.pods.releaser import Releaser
from extender.cycle.pods.writer import Release
from extender.cycle.recovery.repair import Repairs
from extender.cycle.replica import ControlOptions
from extender.cycle.term import Term
from extender.kube.client import Client
from extender.kube.errors import Unavailable
from extender.ledger.writer import Ledger
from extender.policy.plan import Admission, Placement, Plan
from extender.state.cluster import ClusterState
from tests.support.builders import gpu_node, node, pod, project, row, whole

EPOCH = 7


class Office:
    """Pod `old` has ended on n1 and pod `new` waits; the API server takes writes of GpuNodes."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.old = pod("old").needs(1000).bound("n1").build()
        self.new = pod("new").needs(1000).build()
        self.stored = {
            "n1": gpu_node("n1", 1).holds(row(self.old, whole(0), "bound")).build(),
            "n2": gpu_node("n2", 1).build(),
        }
        first = (project("team-a").build(), self.old, self.new, *self.stored.values())
        for each in (*first, *(node(name).gpus(1).build() for name in self.stored)):
            self.state.apply(Upserted(each))
        for kind in (Pod, Node, GpuNode):
            self.state.apply(Synced(kind))
        self.writes: list[tuple[str, list[tuple[str, str]]]] = []
        self.is_down: set[str] = set()
        client: Any = create_autospec(Client, instance=True)
        client.merge_patch.side_effect = self._patch
        client.get.side_effect = self._get
        self.releaser: Any = create_autospec(Releaser, instance=True)
        evictor: Any = create_autospec(Evictor, instance=True)
        ledger = Ledger(client, self.state.gpu_node, base_s=0)
        self.committer = Committer(self.state, ledger, self.releaser, evictor)

    async def _get(self, _resource: object, name: str) -> GpuNode:
        if name in self.is_down:
            raise Unavailable("no API server")
        return self.stored[name]

    async def _patch(self, _resource: object, name: str, patch: dict[str, Any]) -> GpuNode:
        before = await self._get(_resource, name)
        assert patch["metadata"]["resourceVersion"] == before.metadata.resource_version
        rows = convert(patch["spec"], GpuNodeSpec).rows
        self.writes.append((name, [(each.name, each.state) for each in rows]))
        self.store(name, *rows)
        return self.stored[name]

    def store(self, name: str, *rows: Row) -> None:
        """The node has these rows, in a newer version."""
        before = self.stored[name]
        meta = replace(before.metadata, resource_version=f"{before.metadata.resource_version}1")
        self.stored[name] = replace(before, metadata=meta, spec=GpuNodeSpec.of(rows, 0))

    def end_old(self) -> Repairs:
        """The pod is gone, and its row may go."""
        self.state.apply(Removed(Pod, self.old.metadata.uid, "team-a", "old", "9"))
        (stray,) = self.state.rows_to_free()
        return Repairs(frees={stray.node: [stray.row]})

    async def carry_out(self, *nodes: str) -> None:
        """A plan that starts `new` on the nodes."""
        snapshot = self.state.snapshot(1_000)
        admissions = []
        for name in nodes:
            workload = snapshot.workloads["team-a/new"]
            places = (Placement(workload.pods[0], name, tuple(whole(0))),)
            admissions.append(Admission(workload, places, "reserved"))
        await self.committer.carry_out(Plan(admissions=admissions), snapshot, EPOCH)

    @property
    def released(self) -> list[str]:
        """Names of the pods that were queued for release."""
        calls = self.releaser.start.call_args_list
        return [each.pod.name for call in calls for each in call.args[1]]


async def test_a_card_that_is_given_again_costs_one_write() -> None:
    office = Office()
    await office.committer.repair(office.end_old())
    assert not office.state.gpu_nodes["n1"].spec.rows
    await office.carry_out("n1")
    assert office.writes == [("n1", [("new", "reserved")])]
    assert office.released == ["new"]
    assert office.state.freed_rows() == {}


async def test_a_row_leaves_the_ledger_with_the_cycle_whatever_is_planned() -> None:
    office = Office()
    await office.committer.repair(office.end_old())
    await office.carry_out()
    assert office.writes == [("n1", [])]


async def test_a_row_that_no_plan_took_out_is_written_at_the_next_cycle_and_tried_again() -> None:
    office = Office()
    await office.committer.repair(office.end_old())
    office.is_down = {"n1"}
    await office.carry_out("n2")
    assert office.released == ["new"]
    assert [each.name for each in office.state.freed_rows()["n1"]] == ["old"]
    office.is_down = set()
    await office.committer.repair(Repairs())
    assert office.writes[-1] == ("n1", [])


async def test_a_stale_version_of_the_node_does_not_bring_the_row_back() -> None:
    office = Office()
    stale = office.stored["n1"]
    await office.committer.repair(office.end_old())
    office.state.apply(Upserted(stale))
    assert not office.state.gpu_nodes["n1"].spec.rows
    assert office.state.gpu_node("n1") == stale


async def test_the_next_leader_finds_the_row_as_the_ledger_has_it() -> None:
    office = Office()
    repairs = office.end_old()
    await office.committer.repair(repairs)
    office.state.take_back_freed()
    assert [each.row.name for each in office.state.rows_to_free()] == ["old"]
    assert office.state.freed_rows() == {}


async def test_a_term_takes_the_rows_back_though_it_is_cancelled_again_while_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another leader may have used a row that was revoked only."""
    client = create_autospec(Client, instance=True)
    made = Controller(client, client, ControlOptions("me"))
    term, office = Term(made, transitions=3), Office()
    term._state = office.state
    office.state.free_rows(office.end_old().frees)

    async def last() -> None:
        await asyncio.Event().wait()

    for part, name in ((term, "run_cycles"), (term._books, "run"), (term._releaser, "close")):
        monkeypatch.setattr(part, name, last)
    task = asyncio.create_task(term.run())
    for _ in range(4):
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.wait([task])
    assert office.state.freed_rows() == {}


async def test_a_pod_is_not_released_while_its_earlier_row_is_still_there() -> None:
    office = Office()
    office.state.apply(Removed(Pod, office.old.metadata.uid, "team-a", "old", "9"))
    own = row(office.new, whole(0), "reserved")
    office.store("n1", own)
    office.state.apply(Upserted(office.stored["n1"]))
    await office.committer.repair(Repairs(frees={"n1": [own]}))
    office.is_down = {"n1"}
    await office.carry_out("n2")
    assert office.released == []
    # Nor by what recovery finds later.
    workload = office.state.workloads()["team-a/new"]
    again = [Release(each, "n2", EPOCH) for each in workload.pods]
    await office.committer.repair(Repairs(releases=[("team-a", again)]))
    assert office.released == []


async def test_rows_become_bound_with_a_write_of_their_node_and_cause_none() -> None:
    office = Office()
    bound = row(office.old, whole(0), "reserved")
    office.store("n1", bound)
    office.state.apply(Upserted(office.stored["n1"]))
    await office.committer.repair(Repairs())
    await office.carry_out()
    assert office.writes == []
    await office.committer.repair(Repairs(overdue=["n1"]))
    await office.carry_out()
    assert office.writes == [("n1", [("old", "bound")])]
