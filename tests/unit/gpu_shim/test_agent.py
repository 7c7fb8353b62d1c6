"""Ledger rows as tenants, and inventories from files."""

from fractions import Fraction
from pathlib import Path
from typing import Literal

import pytest

from extender.api.events import Removed, Synced, Upserted
from extender.api.kinds import (
    CardShare,
    Device,
    GpuNode,
    GpuNodePool,
    GpuNodePoolSpec,
    Row,
    RowState,
    TimeSlicing,
)
from extender.api.names import LABEL_NODE_POOL
from extender.api.objects import ObjectMeta
from gpu_shim.agent.follower import Follower
from gpu_shim.agent.inventory_file import InventoryError, read_inventory
from gpu_shim.agent.tenants import tenants_of, whole_cards
from gpu_shim.arbiter.container import ContainerCard
from gpu_shim.policy import leases
from gpu_shim.policy.shares import Mode

DEVICES = {at: Device(index=at, memory_mib=16384, uuid=f"GPU-{at}") for at in range(2)}


def row(uid: str = "u-1", *cards: CardShare, request: int = 500, limit: int = 1000) -> Row:
    return Row(
        uid=uid,
        namespace="team",
        name=f"pod-{uid}",
        cards=list(cards) or [CardShare(0, 500, 8192)],
        compute_request_milli=request,
        compute_limit_milli=limit,
        state="bound",
    )


@pytest.mark.parametrize(("mode", "limit"), [("strict", Fraction(1, 2)), ("fair", Fraction(1))])
def test_a_bound_row_is_a_tenant_with_its_caps_and_shares(mode: Mode, limit: Fraction) -> None:
    ((tenant,), rejected) = tenants_of([row()], DEVICES, mode)
    assert not rejected
    assert tenant.cards == (ContainerCard("GPU-0", 8192),)
    assert (tenant.claim.request, tenant.claim.limit) == (Fraction(1, 2), limit)


def test_a_stated_limit_counts_in_strict_mode_too() -> None:
    ((tenant,), _) = tenants_of([row(limit=700)], DEVICES, "strict")
    assert tenant.claim.limit == Fraction(7, 10)


def test_a_request_in_mib_is_due_nothing_and_limited_by_nothing_in_both_modes() -> None:
    modes: tuple[Mode, ...] = ("strict", "fair")
    for mode in modes:
        ((tenant,), _) = tenants_of([row(request=0)], DEVICES, mode)
        assert (tenant.claim.request, tenant.claim.limit) == (Fraction(0), Fraction(1))


def test_a_pod_with_two_cards_is_one_tenant_on_both() -> None:
    cards = (CardShare(1, 250, 4096), CardShare(0, 250, 4096))
    ((tenant,), _) = tenants_of([row("u", *cards)], DEVICES, "fair")
    assert [card.uuid for card in tenant.cards] == ["GPU-1", "GPU-0"]


def in_state(state: RowState) -> Row:
    return Row(**{f: getattr(row(), f) for f in Row.__struct_fields__} | {"state": state})


def test_whole_cards_and_places_that_wait_for_victims_are_left_alone() -> None:
    whole = row("u", CardShare(0, 1000, 16384))
    assert tenants_of([whole, in_state("nominated")], DEVICES, "fair") == ([], [])


def test_a_reserved_row_counts_since_its_pod_may_start_before_it_is_marked_bound() -> None:
    ((tenant,), _) = tenants_of([in_state("reserved")], DEVICES, "fair")
    assert tenant.uid == "u-1"


def test_a_pod_with_whole_cards_is_told_by_their_uuids() -> None:
    whole = row("u", CardShare(0, 1000, 16384), CardShare(1, 1000, 16384))
    assert whole_cards([whole, row()], DEVICES) == {"u": ("GPU-0", "GPU-1")}


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (row("../../etc"), "uid"),
        (row("u", CardShare(7, 500, 1)), "card 7 is not on this node"),
        (row("u", request=600, limit=500), "600 milli is above 500"),
    ],
)
def test_a_row_that_can_not_be_served_is_rejected_and_others_are_not(bad: Row, why: str) -> None:
    tenants, (rejected,) = tenants_of([bad, row("good")], DEVICES, "fair")
    assert [tenant.uid for tenant in tenants] == ["good"]
    assert why in rejected.why


def test_an_inventory_is_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "cards.yaml"
    path.write_text(
        "devices:\n"
        "- {index: 1, uuid: GPU-b, memoryMiB: 2}\n"
        "- {index: 0, uuid: GPU-a, memoryMiB: 1}\n"
    )
    assert [device.uuid for device in read_inventory(path)] == ["GPU-a", "GPU-b"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "devices: [{index: 0, memoryMiB: 1}]",
        "devices: [{index: 0, uuid: a, memoryMiB: 1}, {index: 0, uuid: b, memoryMiB: 1}]",
        "cards: []",
    ],
)
def test_an_inventory_that_is_none_is_a_sentence_with_its_path(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cards.yaml"
    path.write_text(text)
    with pytest.raises(InventoryError, match=r"cards\.yaml: "):
        read_inventory(path)


class Slices:
    """Stands where the agent stands: remembers what it was told."""

    def __init__(self) -> None:
        self.node = "n"
        self.rules = list[TimeSlicing]()
        self.applied = list[GpuNode | None]()
        self.is_lending = False

    def slice_by(self, rules: TimeSlicing) -> None:
        self.rules.append(rules)

    def apply(self, node: GpuNode | None) -> None:
        self.applied.append(node)


def node_in(pool: str, name: str = "n") -> GpuNode:
    return GpuNode(metadata=ObjectMeta(name=name, labels={LABEL_NODE_POOL: pool} if pool else {}))


def pool(name: str, mode: Literal["Disabled", "Strict", "Fair"]) -> GpuNodePool:
    return GpuNodePool(
        metadata=ObjectMeta(name=name), spec=GpuNodePoolSpec(time_slicing=TimeSlicing(mode=mode))
    )


def test_nothing_is_reported_before_everything_is_known() -> None:
    agent = Slices()
    follower = Follower(agent, is_by_pool=True)  # type: ignore[arg-type]
    for event in (Upserted(node_in("a")), Synced(GpuNode), Upserted(pool("a", "Strict"))):
        follower.take(event)
    assert not agent.applied
    follower.take(Synced(GpuNodePool))
    assert [rules.mode for rules in agent.rules] == ["Strict"]


def test_memory_is_lent_where_the_nodes_pool_says_so() -> None:
    agent = Slices()
    follower = Follower(agent, is_by_pool=True)  # type: ignore[arg-type]
    lending = GpuNodePool(
        metadata=ObjectMeta(name="a"), spec=GpuNodePoolSpec(memory_lending="Enabled")
    )
    said = []
    for event in (
        Synced(GpuNode),
        Synced(GpuNodePool),
        Upserted(lending),
        Upserted(node_in("a")),
        Removed(GpuNodePool, "u", "", "a"),
    ):
        follower.take(event)
        said.append(agent.is_lending)
    assert said == [False, False, False, True, False]


def test_a_pools_mode_changes_live_and_other_nodes_are_not_looked_at() -> None:
    agent = Slices()
    follower = Follower(agent, is_by_pool=True)  # type: ignore[arg-type]
    for event in (Synced(GpuNode), Synced(GpuNodePool), Upserted(node_in("b", "other"))):
        follower.take(event)
    assert agent.applied[-1] is None
    for event in (Upserted(node_in("")), Upserted(pool("default", "Fair"))):
        follower.take(event)
    assert [rules.mode for rules in agent.rules] == ["Disabled", "Disabled", "Disabled", "Fair"]
    follower.take(Removed(GpuNode, "u", "", "n"))
    assert agent.applied[-1] is None


def test_a_row_is_due_no_more_time_than_it_has_of_its_cards_so_neighbours_fit() -> None:
    greedy = row("u-1", CardShare(0, 100, 1600), request=1000)
    honest = row("u-2", CardShare(0, 900, 14000), request=900)
    tenants, _ = tenants_of([greedy, honest], DEVICES, "fair")
    assert [tenant.claim.request for tenant in tenants] == [Fraction(1, 10), Fraction(9, 10)]
    card = leases.Card()
    assert [card.admit(tenant.claim, 0) for tenant in tenants] == ["", ""]
