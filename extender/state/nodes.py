"""Flat arrays of what nodes have free, for the kernels: one row per node, `stride` cards per row.

Used by the controller's model (cards, CPU, memory, pod slots: `NodeTable`) and by the extender
(cards only: `CardTable`). `RowIndex` finds the ledger rows of a pod. A node keeps its row number
`ix` until it is dropped; a dropped row has no name and no cards, and the next new node reuses it.
"""

from array import array
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, fields
from typing import Any, Final

from extender.api.claimed_memory import MemorySteps
from extender.api.demand import Delivery, Demand, slices_milli
from extender.api.kinds import CardShare, Device, GpuNode, GpuNodeStatus, Row
from extender.api.objects import ObjectMeta, Taint
from extender.api.units import MILLI_PER_GPU

#: In `card_free`: the node has no card of this index. Nothing fits on a card with a negative value.
ABSENT: Final = -1
_FIRST_STRIDE: Final = 8
#: A card counts as having at most this many MiB, which fit the column of `CardTable`.
_MOST_MIB: Final = 2**31 - 1
#: The deliveries that a node offers: without a DRA driver; with one; with one whose DeviceClass
#: also stands for nvidia.com/gpu; and with one whose driver lets claims share cards.
BY_NODE: Final[frozenset[Delivery]] = frozenset({"resource", "agent"})
BY_CLAIM: Final[frozenset[Delivery]] = frozenset({"claim"})
BY_CLAIM_OR_RESOURCE: Final[frozenset[Delivery]] = frozenset({"claim", "resource"})
BY_SHARE: Final[frozenset[Delivery]] = frozenset({"share"})


def offers_of(ways: Iterable[Delivery]) -> frozenset[Delivery]:
    """The set of these deliveries; `BY_NODE` itself if it is equal to that."""
    found = frozenset(ways)
    return BY_NODE if found == BY_NODE else found


@dataclass(slots=True)
class CardTable:
    """What every card of every node has free, by the ledger.

    `card_free` is int32[n * stride]: milli free of card c of node ix at `ix * stride + c`, `ABSENT`
    if there is none. All rows count, including nominated ones, so a card is negative until the
    victims are gone. An unhealthy card has a capacity of 0. `card_mib` is int32[n]: the MiB of the
    node's smallest healthy card. `n_cards` is int32[n]: highest card index + 1.
    `capacity_milli` is int32[n]: 1000 per healthy card. `foreign_milli` is int32[n]: the part of it
    that pods without a row hold.
    """

    names: list[str] = field(default_factory=list)
    ix: dict[str, int] = field(default_factory=dict)
    stride: int = _FIRST_STRIDE
    card_free: "array[int]" = field(default_factory=lambda: array("i"))
    card_mib: "array[int]" = field(default_factory=lambda: array("i"))
    n_cards: "array[int]" = field(default_factory=lambda: array("i"))
    capacity_milli: "array[int]" = field(default_factory=lambda: array("i"))
    foreign_milli: "array[int]" = field(default_factory=lambda: array("i"))
    model: list[str] = field(default_factory=list)
    _dropped: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        """The number of rows in the arrays, including dropped ones."""
        return len(self.names)

    def row_for(self, name: str) -> int:
        """The node's ix; an unknown node gets a new row without cards."""
        ix = self.ix.get(name)
        if ix is not None:
            return ix
        if self._dropped:
            ix = self._dropped.pop()
            self.names[ix] = name
        else:
            ix = len(self.names)
            self.names.append(name)
            self.model.append("")
            for column in (
                self.card_mib,
                self.n_cards,
                self.capacity_milli,
                self.foreign_milli,
            ):
                column.append(0)
            self.card_free.extend([ABSENT] * self.stride)
        self.ix[name] = ix
        return ix

    def set_node(self, gpu_node: GpuNode) -> int:
        """Set the node's devices, its rows, and what pods without a row hold; returns its ix."""
        ix = self.row_for(gpu_node.metadata.name)
        devices = gpu_node.status.devices
        self._clear_cards(ix)
        n_cards = max((device.index + 1 for device in devices), default=0)
        if n_cards > self.stride:
            self._widen(n_cards)
        healthy = [device for device in devices if device.health == "Healthy"]
        at = ix * self.stride
        for device in devices:
            self.card_free[at + device.index] = 0
        for device in healthy:
            self.card_free[at + device.index] = MILLI_PER_GPU
        self.n_cards[ix] = n_cards
        self.capacity_milli[ix] = MILLI_PER_GPU * len(healthy)
        smallest = min((device.memory_mib for device in healthy), default=0)
        self.card_mib[ix] = min(smallest, _MOST_MIB)
        self.model[ix] = next((device.model for device in devices if device.model), "")
        for row in gpu_node.spec.rows:
            self.hold(ix, row.cards)
        if n_foreign := gpu_node.n_foreign:
            self._hold_foreign(ix, gpu_node, n_foreign)
        if shares := gpu_node.foreign_shares:
            self.hold(ix, shares)
            usable = {device.index for device in healthy}
            self.foreign_milli[ix] += sum(s.milli for s in shares if s.index in usable)
        return ix

    def drop_node(self, name: str) -> None:
        """Forget the node; does nothing if it is not known."""
        ix = self.ix.pop(name, None)
        if ix is None:
            return
        self._clear_cards(ix)
        self.names[ix] = ""
        self._dropped.append(ix)

    def hold(self, ix: int, cards: Iterable[CardShare]) -> None:
        """Allocate `cards` of the node, ignoring cards that it no longer has."""
        at, n_cards = ix * self.stride, self.n_cards[ix]
        for card in cards:
            if card.index < n_cards:
                self.card_free[at + card.index] -= card.milli

    def give_back(self, ix: int, cards: Iterable[CardShare]) -> None:
        """Undo `hold`, ignoring cards that the node no longer has."""
        at, n_cards = ix * self.stride, self.n_cards[ix]
        for card in cards:
            if card.index < n_cards:
                self.card_free[at + card.index] += card.milli

    def free_of(self, ix: int) -> "array[int]":
        """Milli free of each card of the node: int32[n_cards]."""
        at = ix * self.stride
        return self.card_free[at : at + self.n_cards[ix]]

    def copy(self) -> "CardTable":
        """An independent copy; costs one memory copy per column."""
        return CardTable(**{each.name: copy(getattr(self, each.name)) for each in fields(self)})

    def _hold_foreign(self, ix: int, gpu_node: GpuNode, n_foreign: int) -> None:
        """Hold whole cards of unknown index: cards without a row first, the highest index first.

        If too few cards have no row, cards with a row are held twice, and stay held when the row
        goes. Cards of nominated rows come last, because their pods hold nothing yet.
        """
        rank: dict[int, int] = {}
        for row in gpu_node.spec.rows:
            for card in row.cards:
                is_firm = row.state != "nominated"
                rank[card.index] = min(rank.get(card.index, 2), 1 if is_firm else 2)
        healthy = [d.index for d in gpu_node.status.devices if d.health == "Healthy"]
        healthy.sort(key=lambda index: (rank.get(index, 0), -index))
        at = ix * self.stride
        for index in healthy[:n_foreign]:
            self.card_free[at + index] -= MILLI_PER_GPU
        self.foreign_milli[ix] = MILLI_PER_GPU * min(n_foreign, len(healthy))

    def _clear_cards(self, ix: int) -> None:
        at = ix * self.stride
        self.card_free[at : at + self.stride] = array("i", [ABSENT] * self.stride)
        self.n_cards[ix] = self.card_mib[ix] = self.capacity_milli[ix] = 0
        self.foreign_milli[ix] = 0
        self.model[ix] = ""

    def _widen(self, stride: int) -> None:
        """Copy the cards to a layout with a larger stride."""
        old, old_stride = self.card_free, self.stride
        pad = array("i", [ABSENT] * (stride - old_stride))
        wide = array("i")
        for at in range(0, len(old), old_stride):
            wide.extend(old[at : at + old_stride])
            wide.extend(pad)
        self.card_free, self.stride = wide, stride


@dataclass(slots=True)
class NodeFacts:
    """What the model knows of a node besides its cards.

    The free figures are allocatable less the requests of every live pod on the node, including pods
    with nominated rows; so, like cards, they are negative until victims are gone.
    `cpu_milli` and `memory_mib` are allocatable, and so is `counted` for resources in whole units
    (MIG instances); `free_counted` is what is free of these. `offers` is how pods can get its
    cards; `share_steps` are the amounts of memory that claims can get of a shared card. `stays`: an
    autoscaler would keep the node even without GPU pods on it.
    """

    name: str
    pool: str = "default"
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    is_ready: bool = True
    free_cpu_milli: int = 0
    free_memory_mib: int = 0
    free_pods: int = 110
    cpu_milli: int = 0
    memory_mib: int = 0
    counted: Mapping[str, int] = field(default_factory=dict)
    free_counted: Mapping[str, int] = field(default_factory=dict)
    offers: frozenset[Delivery] = BY_NODE
    share_steps: frozenset[MemorySteps] = frozenset()
    stays: bool = False


#: The columns of a NodeTable, which are fields of NodeFacts too, with their values in an empty row.
COLUMNS: Final[Mapping[str, Any]] = {
    "pool": "",
    "labels": {},
    "taints": (),
    "is_ready": False,
    "free_cpu_milli": 0,
    "free_memory_mib": 0,
    "free_pods": 0,
    "cpu_milli": 0,
    "memory_mib": 0,
    "counted": {},
    "free_counted": None,
    "offers": BY_NODE,
    "share_steps": frozenset(),
    "stays": False,
}


@dataclass(slots=True)
class NodeTable:
    """Nodes of the cluster: `cards`, and columns aligned with it by `ix`.

    `is_ready` is 1 where pods may be placed: the node exists, is Ready and is not cordoned; 0 for
    dropped rows and for nodes whose Node is not known yet. `free_cpu_milli`, `free_memory_mib`,
    `cpu_milli` and `memory_mib` are int64[n], `free_pods` is int32[n]. `free_counted` is a dict for
    nodes with counted resources, else None. All columns mean the same as in `NodeFacts`. Snapshots
    take a `copy()`.
    """

    cards: CardTable = field(default_factory=CardTable)
    pool: list[str] = field(default_factory=list)
    labels: list[Mapping[str, str]] = field(default_factory=list)
    taints: list[tuple[Taint, ...]] = field(default_factory=list)
    is_ready: bytearray = field(default_factory=bytearray)
    free_cpu_milli: "array[int]" = field(default_factory=lambda: array("q"))
    free_memory_mib: "array[int]" = field(default_factory=lambda: array("q"))
    free_pods: "array[int]" = field(default_factory=lambda: array("i"))
    cpu_milli: "array[int]" = field(default_factory=lambda: array("q"))
    memory_mib: "array[int]" = field(default_factory=lambda: array("q"))
    counted: list[Mapping[str, int]] = field(default_factory=list)
    free_counted: list[dict[str, int] | None] = field(default_factory=list)
    offers: list[frozenset[Delivery]] = field(default_factory=list)
    share_steps: list[frozenset[MemorySteps]] = field(default_factory=list)
    stays: bytearray = field(default_factory=bytearray)

    def __len__(self) -> int:
        """The number of rows in the columns, including dropped ones."""
        return len(self.cards)

    def takes_pods(self, name: str) -> bool:
        """Whether new pods may be placed on the node, which must be in the table."""
        return bool(self.is_ready[self.cards.ix[name]])

    def ix_of(self, name: str) -> int | None:
        """The node's row, or None if it is not known."""
        return self.cards.ix.get(name)

    def pool_of(self, name: str) -> str:
        """The node's pool; empty if the node or its pool is not known."""
        ix = self.cards.ix.get(name)
        return "" if ix is None else self.pool[ix]

    def set_node(self, facts: NodeFacts) -> int:
        """Set all columns of the node but its cards. Returns its ix."""
        ix = self.cards.row_for(facts.name)
        self._grow()
        for name in COLUMNS:
            getattr(self, name)[ix] = getattr(facts, name)
        self.free_counted[ix] = dict(facts.free_counted) or None
        return ix

    def set_cards(self, gpu_node: GpuNode) -> int:
        """Set the node's cards from its GpuNode, and no other columns. Returns its ix."""
        ix = self.cards.set_node(gpu_node)
        self._grow()
        return ix

    def add_empty(self, facts: NodeFacts, devices: list[Device]) -> None:
        """Add a node on which nothing runs."""
        status = GpuNodeStatus(devices=devices)
        self.set_cards(GpuNode(metadata=ObjectMeta(name=facts.name), status=status))
        self.set_node(facts)

    def drop_node(self, name: str) -> None:
        """Forget the node and its cards; does nothing if it is not known."""
        ix = self.cards.ix.get(name)
        if ix is None:
            return
        self.cards.drop_node(name)
        for column, blank in COLUMNS.items():
            getattr(self, column)[ix] = blank

    def hold(self, ix: int, demand: Demand, cards: Iterable[CardShare] = ()) -> None:
        """Allocate one pod's cards, CPU, memory, counted resources and pod slot on the node."""
        self.cards.hold(ix, cards)
        self.free_cpu_milli[ix] -= demand.cpu_milli
        self.free_memory_mib[ix] -= demand.memory_mib
        self.free_pods[ix] -= 1
        if demand.counted:
            self._count(ix, demand, -1)

    def give_back(self, ix: int, demand: Demand, cards: Iterable[CardShare] = ()) -> None:
        """Undo `hold`."""
        self.cards.give_back(ix, cards)
        self.free_cpu_milli[ix] += demand.cpu_milli
        self.free_memory_mib[ix] += demand.memory_mib
        self.free_pods[ix] += 1
        if demand.counted:
            self._count(ix, demand, 1)

    def copy(self) -> "NodeTable":
        """An independent copy; labels and taints themselves are shared."""
        found = NodeTable(self.cards.copy(), **{name: getattr(self, name)[:] for name in COLUMNS})
        found.free_counted = [dict(free) if free else None for free in self.free_counted]
        return found

    def gpu_milli(self, ix: int) -> int:
        """All that queues can be charged for on the node: its cards and MIG instances, in milli."""
        return self.cards.capacity_milli[ix] + slices_milli(self.counted[ix].items())

    def ready_capacity(self, pools: Iterable[str]) -> dict[str, tuple[int, int, int]]:
        """What the ready nodes of these pools offer: milli-GPU, milli-CPU, MiB; O(nodes)."""
        sums = {pool: [0, 0, 0] for pool in pools}
        for ix, pool in enumerate(self.pool):
            total = sums.get(pool)
            if total is not None and self.is_ready[ix]:
                total[0] += self.gpu_milli(ix)
                total[1] += self.cpu_milli[ix]
                total[2] += self.memory_mib[ix]
        return {pool: (gpu, cpu, memory) for pool, (gpu, cpu, memory) in sums.items()}

    def fits_counted(self, ix: int, demand: Demand) -> bool:
        """Whether the node has the demand's counted resources free."""
        free = self.free_counted[ix] or {}
        return all(free.get(name, 0) >= n for name, n in demand.counted)

    def _count(self, ix: int, demand: Demand, sign: int) -> None:
        free = self.free_counted[ix]
        if free is None:
            free = self.free_counted[ix] = {}
        for name, n in demand.counted:
            free[name] = free.get(name, 0) + sign * n

    def _grow(self) -> None:
        while len(self.pool) < len(self.cards):
            for column, blank in COLUMNS.items():
                getattr(self, column).append(blank)


@dataclass(slots=True)
class RowIndex:
    """The ledger rows of each pod, by its UID: normally one, two while it is moved."""

    _by_uid: dict[str, dict[str, Row]] = field(default_factory=dict)
    _uids_of: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def set_rows(self, node: str, rows: Iterable[Row]) -> None:
        """Replace all rows of `node`; costs the node's old and new rows."""
        for uid in self._uids_of.pop(node, ()):
            held = self._by_uid[uid]
            del held[node]
            if not held:
                del self._by_uid[uid]
        by_uid = {row.uid: row for row in rows}
        if by_uid:
            self._uids_of[node] = tuple(by_uid)
        for uid, row in by_uid.items():
            self._by_uid.setdefault(uid, {})[node] = row

    def held_of(self, uid: str) -> Mapping[str, Row]:
        """The pod's rows by node name; empty if it has none. Callers must not change it."""
        return self._by_uid.get(uid, {})
