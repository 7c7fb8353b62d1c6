"""The ledger on a real API server: concurrent writers, lost answers, gangs that are rolled back."""

import asyncio
import json
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from typing import Any

import pytest
from msgspec import to_builtins
from prometheus_client import REGISTRY

from extender.api.events import Synced, Upserted
from extender.api.kinds import CardShare, GpuNode, Row
from extender.api.objects import Pod
from extender.api.reasons import Reason, Refused
from extender.kube.client import Client
from extender.kube.errors import NotLeading, Unavailable
from extender.kube.resources import GPU_NODES
from extender.ledger.rows import add_rows
from extender.ledger.writer import Ledger, RowChange
from extender.state.cluster import ClusterState
from tests.support.builders import gpu_node, part, pod, row, whole
from tests.support.controlplane.handles import Api
from tests.support.overbooked import overbooked

N_WRITERS = 16
A, B, C = (pod(name).needs(500).build() for name in "abc")

Fault = Callable[[str], bool]


class FaultyClient(Client):
    """A real client that loses patches of some nodes on the way there, or on the way back."""

    is_lost_before: Fault = staticmethod(lambda _: False)
    is_lost_after: Fault = staticmethod(lambda _: False)
    n_lost = 0

    async def merge_patch(
        self,
        resource: Any,
        name: str,
        patch: object,
        namespace: str = "",
        subresource: str = "",
    ) -> Any:
        if self.is_lost_before(name):
            self.n_lost += 1
            raise Unavailable(f"{name}: connection refused")
        answer = await super().merge_patch(resource, name, patch, namespace, subresource)
        if self.is_lost_after(name):
            self.n_lost += 1
            raise Unavailable(f"{name}: connection reset")
        return answer


@pytest.fixture
async def client(api: Api) -> AsyncIterator[FaultyClient]:
    async with await FaultyClient.connect(api.kubeconfig) as client:
        yield client


async def make_nodes(client: Client, *names: str, cards: int = 8) -> dict[str, GpuNode]:
    """Nodes with empty ledgers, as a watch would have told of them."""
    known = {}
    for name in names:
        built = gpu_node(name, cards).build()
        await client.create(GPU_NODES, {"metadata": {"name": name}, "spec": {"rows": []}})
        status = {"status": to_builtins(built.status)}
        known[name] = await client.merge_patch(GPU_NODES, name, status, subresource="status")
    return known


async def live(client: Client, *names: str) -> dict[str, GpuNode]:
    nodes = {name: await client.get(GPU_NODES, name) for name in names}
    for node in nodes.values():
        assert overbooked(node) == []
    return nodes


def uids(node: GpuNode) -> set[str]:
    return {held.uid for held in node.spec.rows}


def counted(name: str) -> float:
    return REGISTRY.get_sample_value(f"ballast_ledger_{name}_total") or 0.0


def ledger_of(client: Client, known: dict[str, GpuNode]) -> Ledger:
    return Ledger(client, known.get, base_s=0.001)


async def reserve(ledger: Ledger, rows: Mapping[str, Sequence[Row]]) -> Refused | None:
    """Add the rows on all their nodes; on refusal of any, on none."""
    outcome = await ledger.commit([RowChange("reserve", rows=rows)])
    for error in outcome.failed.values():
        raise error
    return next(iter(outcome.refused.values()), None)


async def free(ledger: Ledger, rows: Mapping[str, Collection[Row]]) -> None:
    """Remove exactly these rows."""
    for error in (await ledger.commit([RowChange("free", frees=rows)])).failed.values():
        raise error


async def all_of(tasks: Iterable[Awaitable[Any]]) -> list[Any]:
    return list(await asyncio.gather(*tasks))


# -- many writers ----------------------------------------------------------------------------


async def test_sixteen_writers_put_sixteen_halves_on_eight_cards(client: FaultyClient) -> None:
    known = await make_nodes(client, "n1")
    conflicts = counted("conflicts")

    async def place(number: int) -> GpuNode | Refused:
        holder = pod(f"p{number}").build()

        def edit(current: GpuNode) -> tuple[Row, ...] | Refused:
            for index in range(8):
                rows = add_rows(current, [row(holder, part(index, 500), epoch=0)])
                if not isinstance(rows, Refused):
                    return rows
            return Refused(Reason.CARDS_BUSY)

        return await ledger_of(client, known).change("n1", edit)

    outcomes = await all_of(place(number) for number in range(N_WRITERS))
    assert not [outcome for outcome in outcomes if isinstance(outcome, Refused)]
    node = (await live(client, "n1"))["n1"]
    assert uids(node) == {f"uid-p{number}" for number in range(N_WRITERS)}
    assert counted("conflicts") > conflicts, "no two writers ever met"


async def test_gangs_that_race_for_too_few_cards_land_whole_or_not_at_all(
    client: FaultyClient,
) -> None:
    names = [f"n{number}" for number in range(4)]
    known = await make_nodes(client, *names, cards=5)
    conflicts, takebacks = counted("conflicts"), counted("takebacks")

    async def place(number: int) -> Refused | None:
        # Every gang wants one card of each node; which one differs, so that they meet in parts.
        rows = {
            name: [row(pod(f"g{number}-{at}").build(), whole((number * (at + 1)) % 5), epoch=1)]
            for at, name in enumerate(names)
        }
        return await reserve(ledger_of(client, known), rows)

    outcomes = await all_of(place(number) for number in range(N_WRITERS))
    nodes = await live(client, *names)
    for number, outcome in enumerate(outcomes):
        held = [f"uid-g{number}-{at}" in uids(nodes[name]) for at, name in enumerate(names)]
        assert set(held) == {outcome is None}, f"gang {number}: {outcome}, {held}"
    assert counted("conflicts") > conflicts, "no two writers ever met"
    assert counted("takebacks") > takebacks, "no gang was ever taken back"
    # Five gangs fit, and nothing that was taken back may be in their way.
    for number in range(N_WRITERS):
        await place(number)
    assert all(len(node.spec.rows) == 5 for node in (await live(client, *names)).values())


# -- one batch -------------------------------------------------------------------------------


async def test_many_changes_cost_one_write_per_node(client: FaultyClient) -> None:
    known = await make_nodes(client, "n1", "n2")
    ledger = ledger_of(client, known)
    first = await ledger.commit(
        [
            RowChange("a", rows={"n1": [row(A, whole(0))]}),
            RowChange("b", rows={"n1": [row(B, whole(1))]}),
        ]
    )
    assert (first.refused, first.failed, first.leftover) == ({}, {}, set())
    gang = {"n1": [row(C, whole(0))], "n2": [row(pod("d").build(), whole(0))]}
    changes = [
        RowChange("gone", frees={"n1": [row(A, whole(0))]}),
        RowChange("bound", bound={"n1": [B.metadata.uid]}),
        RowChange("gang", rows=gang),
    ]
    before = await live(client, "n1", "n2")
    outcome = await ledger.commit(changes)
    after = await live(client, "n1", "n2")
    assert (outcome.refused, outcome.failed) == ({}, {})
    assert {held.uid: held.state for held in after["n1"].spec.rows} == {
        B.metadata.uid: "bound",
        C.metadata.uid: "reserved",
    }
    steps = [after[n].metadata.generation - before[n].metadata.generation for n in ("n1", "n2")]
    assert steps == [1, 1]
    assert outcome.written == after


async def test_doing_it_again_writes_nothing(client: FaultyClient) -> None:
    known = await make_nodes(client, "n1")
    changes = [RowChange("a", rows={"n1": [row(A, whole(0))]}, bound={"n1": [B.metadata.uid]})]
    await ledger_of(client, known).commit(changes)
    before, writes = await live(client, "n1"), counted("writes")
    for stale in (known, before):
        outcome = await ledger_of(client, stale).commit(changes)
        assert (outcome.refused, outcome.failed) == ({}, {})
    assert await live(client, "n1") == before
    assert counted("writes") == writes


async def test_a_gang_that_is_refused_on_one_node_is_taken_back_on_the_others(
    client: FaultyClient,
) -> None:
    known = await make_nodes(client, "n1", "n2", cards=1)
    ledger = ledger_of(client, known)
    held = row(A, whole(0), "nominated")
    assert await reserve(ledger, {"n1": [held], "n2": [row(B, whole(0))]}) is None
    gang = {"n1": [row(A, whole(0), epoch=2)], "n2": [row(C, whole(0), epoch=2)]}
    refused = await reserve(ledger, gang)
    assert isinstance(refused, Refused)
    assert refused.reason is Reason.CARDS_BUSY
    nodes = await live(client, "n1", "n2")
    assert nodes["n1"].spec.rows == [held]
    assert uids(nodes["n2"]) == {B.metadata.uid}


async def test_the_rest_of_a_batch_stays_when_one_change_is_refused(client: FaultyClient) -> None:
    known = await make_nodes(client, "n1", "n2", cards=1)
    ledger = ledger_of(client, known)
    await reserve(ledger, {"n2": [row(B, whole(0))]})
    outcome = await ledger.commit(
        [
            RowChange("gang", rows={"n1": [row(A, part(0, 500))], "n2": [row(C, part(0, 500))]}),
            RowChange("lone", rows={"n1": [row(pod("d").build(), part(0, 500))]}),
        ]
    )
    assert outcome.refused.keys() == {"gang"}
    assert uids((await live(client, "n1"))["n1"]) == {"uid-d"}


async def test_a_node_without_a_ledger_refuses_rows_and_ignores_frees(
    client: FaultyClient,
) -> None:
    known = await make_nodes(client, "n1")
    ledger = ledger_of(client, known)
    refused = await reserve(ledger, {"n1": [row(A, whole(0))], "gone": [row(B, whole(0))]})
    assert isinstance(refused, Refused)
    assert refused.reason is Reason.UNKNOWN_NODE
    assert uids((await live(client, "n1"))["n1"]) == set()
    await free(ledger, {"gone": [row(A, whole(0))]})


# -- what is known and what is live ----------------------------------------------------------


async def test_a_stale_picture_costs_a_conflict_and_no_row(client: FaultyClient) -> None:
    known = await make_nodes(client, "n1")
    await reserve(ledger_of(client, known), {"n1": [row(A, whole(0))]})
    conflicts = counted("conflicts")
    await reserve(ledger_of(client, known), {"n1": [row(B, whole(1))]})
    assert counted("conflicts") == conflicts + 1
    assert uids((await live(client, "n1"))["n1"]) == {A.metadata.uid, B.metadata.uid}


async def test_a_full_card_in_a_stale_picture_is_looked_at_again_before_refusing(
    client: FaultyClient,
) -> None:
    known = await make_nodes(client, "n1")
    ledger = ledger_of(client, known)
    await reserve(ledger, {"n1": [row(A, whole(0))]})
    stale = await live(client, "n1")
    await free(ledger, {"n1": [row(A, whole(0))]})
    assert await reserve(ledger_of(client, stale), {"n1": [row(B, whole(0))]}) is None


async def test_ones_own_last_write_is_known_before_the_watch_tells_it(
    client: FaultyClient,
) -> None:
    ledger = ledger_of(client, await make_nodes(client, "n1"))
    conflicts = counted("conflicts")
    for index, holder in enumerate((A, B, C)):
        await reserve(ledger, {"n1": [row(holder, whole(index))]})
    assert counted("conflicts") == conflicts
    assert len((await live(client, "n1"))["n1"].spec.rows) == 3


# -- faults ----------------------------------------------------------------------------------


async def test_a_write_whose_answer_is_lost_is_found_by_reading(client: FaultyClient) -> None:
    known = await make_nodes(client, "n1")
    client.is_lost_after = lambda _: client.n_lost == 0
    assert await reserve(ledger_of(client, known), {"n1": [row(A, whole(0))]}) is None
    assert client.n_lost == 1
    node = (await live(client, "n1"))["n1"]
    assert (uids(node), node.metadata.generation) == ({A.metadata.uid}, 2)


async def test_a_write_that_never_arrived_is_sent_again(client: FaultyClient) -> None:
    known = await make_nodes(client, "n1")
    client.is_lost_before = lambda _: client.n_lost < 2
    assert await reserve(ledger_of(client, known), {"n1": [row(A, whole(0))]}) is None
    assert client.n_lost == 2
    assert uids((await live(client, "n1"))["n1"]) == {A.metadata.uid}


async def test_rows_whose_answer_was_lost_are_taken_back_with_their_gang(
    client: FaultyClient,
) -> None:
    known = await make_nodes(client, "n1", "n2", cards=1)
    await reserve(ledger_of(client, known), {"n2": [row(B, whole(0))]})
    client.is_lost_after = lambda name: name == "n1" and client.n_lost == 0
    refused = await reserve(
        ledger_of(client, known), {"n1": [row(A, whole(0))], "n2": [row(C, whole(0))]}
    )
    assert isinstance(refused, Refused)
    assert client.n_lost == 1
    assert uids((await live(client, "n1"))["n1"]) == set()


async def test_a_gang_with_an_unreachable_node_is_taken_back_where_it_landed(
    client: FaultyClient,
) -> None:
    known = await make_nodes(client, "n1", "n2")
    client.is_lost_before = lambda name: name == "n2"
    gang = RowChange("gang", rows={"n1": [row(A, whole(0))], "n2": [row(B, whole(0))]})
    outcome = await ledger_of(client, known).commit([gang])
    assert outcome.failed.keys() == {"gang"}
    assert outcome.leftover == set()
    nodes = await live(client, "n1", "n2")
    assert uids(nodes["n1"]) == uids(nodes["n2"]) == set()


async def test_rows_that_could_not_be_taken_back_are_found_as_an_unfinished_gang(
    client: FaultyClient,
) -> None:
    known = await make_nodes(client, "n1", "n2")
    members = [pod(name).needs(1000).gang("g", 2).build() for name in "ab"]
    seen: list[str] = []

    def is_lost(name: str) -> bool:
        seen.append(name)
        return name == "n2" or seen.count("n1") > 1

    client.is_lost_before = is_lost
    rows = {name: [row(pod_, whole(0))] for name, pod_ in zip(known, members, strict=True)}
    outcome = await ledger_of(client, known).commit([RowChange("g", rows=rows)])
    assert outcome.failed.keys() == outcome.leftover == {"g"}
    state = ClusterState()
    for obj in (*members, *(await live(client, "n1", "n2")).values()):
        state.apply(Upserted(obj))
    state.apply(Synced(Pod))
    (left,) = state.unfinished()
    assert left.is_partial
    assert [held.uid for held in left.held] == ["uid-a"]


async def test_a_process_that_does_not_lead_writes_nothing_and_takes_nothing_back(
    client: FaultyClient,
) -> None:
    known = await make_nodes(client, "n1")

    def stop() -> None:
        raise NotLeading("the lease is not ours")

    client.before_write = stop
    with pytest.raises(NotLeading):
        await reserve(ledger_of(client, known), {"n1": [row(A, whole(0))]})
    assert uids((await live(client, "n1"))["n1"]) == set()


async def test_rows_are_stored_as_they_were_meant(client: FaultyClient) -> None:
    known = await make_nodes(client, "n1")
    meant = Row(
        uid="u",
        namespace="team-a",
        name="a",
        project="p",
        group="g",
        cards=[CardShare(3, 500, 8000), CardShare(4, 500, 8000)],
        compute_request_milli=500,
        compute_limit_milli=750,
        non_preemptible=True,
        state="reserved",
        epoch=1_000_001,
        reserved_at=1_700_000_000,
    )
    await reserve(ledger_of(client, known), {"n1": [meant]})
    assert (await live(client, "n1"))["n1"].spec.rows == [meant]


async def test_the_api_server_does_not_track_the_fields_of_rows(client: FaultyClient) -> None:
    known = await make_nodes(client, "n-1")
    path = "/apis/ballast.dev/v1alpha1/gpunodes/n-1"
    tracked = json.loads(await client.request("GET", path))
    assert tracked["metadata"]["managedFields"]
    ledger = ledger_of(client, known)
    assert await reserve(ledger, {"n-1": [row(A, part(0, 500))]}) is None
    assert await reserve(ledger, {"n-1": [row(B, part(1, 500))]}) is None
    found = json.loads(await client.request("GET", path))
    assert len(found["spec"]["rows"]) == 2
    assert "managedFields" not in found["metadata"]
