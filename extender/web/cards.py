"""Nodes and their cards as a grid: each card's health, how much is held of it, and by which
pods."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from extender.api.kinds import GpuNode
from extender.api.ledger import Device
from extender.api.units import format_gpus

WHOLE_MILLI: Final = 1000


@dataclass(slots=True, frozen=True)
class Card:
    """One card. `label` describes its picture in words."""

    index: int
    milli: int
    is_healthy: bool
    label: str

    @property
    def kind(self) -> str:
        """The style of its picture."""
        if not self.is_healthy:
            return "sick"
        if not self.milli:
            return "free"
        return "full" if self.milli >= WHOLE_MILLI else "part"


@dataclass(slots=True, frozen=True)
class NodeRow:
    """The figures of one node; cards are described only where they are shown.

    `free_milli` excludes unhealthy cards and those that another scheduler allocated.
    """

    node: GpuNode
    held_milli: int
    free_milli: int
    fragment_milli: int
    n_whole: int
    n_sick: int

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.metadata.name

    @property
    def model(self) -> str:
        """The model of its cards; empty if no agent reported it."""
        return next((each.model for each in self.node.status.devices if each.model), "")

    @property
    def n_foreign(self) -> int:
        """Cards that another scheduler allocated."""
        return self.node.n_foreign

    @property
    def n_pods(self) -> int:
        """Pods that hold cards."""
        return sum(row.state != "nominated" for row in self.node.spec.rows)

    @property
    def free(self) -> str:
        """Free GPUs."""
        return format_gpus(self.free_milli)

    @property
    def fragments(self) -> str:
        """Free GPUs in fragments."""
        return format_gpus(self.fragment_milli)

    @property
    def cards(self) -> list[Card]:
        """Its cards, by index."""
        held = _held(self.node)
        pods: defaultdict[int, list[str]] = defaultdict(list)
        for row in self.node.spec.rows:
            comes = " comes, once its victims have left" if row.state == "nominated" else ""
            for share in row.cards:
                said = f"{row.key} {format_gpus(share.milli)}{comes}"
                pods[share.index].append(said)
        return [
            _card(device, held.get(device.index, 0), pods[device.index])
            for device in sorted(self.node.status.devices, key=lambda each: each.index)
        ]


@dataclass(slots=True, frozen=True)
class Totals:
    """Sums over all nodes; GPUs are decimal strings."""

    nodes: int
    cards: int
    held: str
    whole: int
    fragments: str
    sick: int


def rows(nodes: Iterable[GpuNode]) -> list[NodeRow]:
    """The nodes: most unhealthy cards first, then largest fragments, then by name."""
    made = [_row(each) for each in nodes if each.status.devices]
    return sorted(made, key=lambda row: (-row.n_sick, -row.fragment_milli, row.name))


def totals(nodes: Iterable[NodeRow]) -> Totals:
    """The sums. Cards of other schedulers count as held."""
    listed = list(nodes)
    held = sum(row.held_milli + row.n_foreign * WHOLE_MILLI for row in listed)
    return Totals(
        nodes=len(listed),
        cards=sum(len(row.node.status.devices) for row in listed),
        held=format_gpus(held),
        whole=sum(row.n_whole for row in listed),
        fragments=format_gpus(sum(row.fragment_milli for row in listed)),
        sick=sum(row.n_sick for row in listed),
    )


def _held(node: GpuNode) -> dict[int, int]:
    """Milli-GPU by card that pods hold, with or without a row; nominated rows hold nothing yet."""
    held: dict[int, int] = {}
    for row in node.spec.rows:
        if row.state != "nominated":
            for share in row.cards:
                held[share.index] = held.get(share.index, 0) + share.milli
    for share in node.foreign_shares:
        held[share.index] = held.get(share.index, 0) + share.milli
    return held


def _row(node: GpuNode) -> NodeRow:
    by_card = _held(node)
    healthy = [each.index for each in node.status.devices if each.health == "Healthy"]
    left = [WHOLE_MILLI - by_card.get(index, 0) for index in healthy]
    n_whole = max(0, left.count(WHOLE_MILLI) - node.n_foreign)
    fragments = sum(milli for milli in left if 0 < milli < WHOLE_MILLI)
    return NodeRow(
        node=node,
        held_milli=sum(by_card.values()),
        free_milli=n_whole * WHOLE_MILLI + fragments,
        fragment_milli=fragments,
        n_whole=n_whole,
        n_sick=len(node.status.devices) - len(healthy),
    )


def _card(device: Device, held_milli: int, pods: list[str]) -> Card:
    milli = min(held_milli, WHOLE_MILLI)
    is_healthy = device.health == "Healthy"
    said = f"card {device.index}: {format_gpus(milli)} held"
    if not is_healthy:
        said += ", unhealthy"
    return Card(device.index, milli, is_healthy, "; ".join([said, *pods]))
