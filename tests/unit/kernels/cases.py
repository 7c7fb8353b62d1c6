"""Nodes, the pods on them and which of these may leave, built for the kernels that choose.

A pod is milli of some cards, CPU and memory; by default it is the whole of its workload, in a queue
that gives whatever is asked.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from extender.api.demand import Demand
from extender.state.nodes import NodeFacts, NodeTable

Amounts = tuple[int, int, int]
_PLENTY = 1 << 40


@dataclass
class Pod:
    """`milli` of each of `cards` on a node; `extra` is what it holds of what is counted."""

    node: int = 0
    owner: int = 0
    cards: tuple[int, ...] = ()
    milli: int = 1000
    cpu: int = 0
    memory: int = 0
    lost: int = 0
    turn: int = 0
    shape: int = 0
    is_here: bool = True
    is_core: bool = False
    may_move: bool = False
    safe: int = 0
    extra: tuple[int, ...] = ()

    @property
    def amounts(self) -> Amounts:
        """What its queue is charged."""
        return len(self.cards) * self.milli, self.cpu, self.memory


@dataclass
class Work:
    """A workload; see `extender.policy.preemption.candidates` for the words."""

    queue: int = 0
    surplus: int = 0
    priority: int = 0
    rank: int = 0
    age: int = 0
    is_stuck: bool = False


@dataclass
class Giver:
    """A queue; `path` names the queues with floors that count, one floor for each tier."""

    has: Amounts = (0, 0, 0)
    floors: tuple[Amounts, Amounts] = ((0, 0, 0), (0, 0, 0))
    tiers: int = 1
    path: tuple[int, ...] = ()
    is_mobile: bool = False


@dataclass
class Candidates:
    """The arrays of `extender.policy.preemption.candidates.Candidates` that kernels read."""

    start: "array[int]"
    owner: "array[int]"
    shape: "array[int]"
    turn: "array[int]"
    card_start: "array[int]"
    card_ix: "array[int]"
    card_milli: "array[int]"
    amounts: "array[int]"
    lost: "array[int]"
    is_here: bytearray
    is_core: bytearray
    may_move: bytearray
    surplus: "array[int]"
    whole_lost: "array[int]"
    whole_amounts: "array[int]"
    is_stuck: bytearray
    priority: "array[int]"
    rank: "array[int]"
    age: "array[int]"
    queue: "array[int]"
    has: "array[int]"
    most_pods: int


@dataclass
class Eligibility:
    """The arrays of `extender.policy.preemption.eligibility.Eligibility`."""

    tiers: bytearray
    path_start: "array[int]"
    path: "array[int]"
    floors: "array[int]"
    is_safe: bytearray
    is_mobile: bytearray
    moves: bytearray
    below_priority: int


@dataclass
class Place:
    """A node: milli free by card, and what else is free."""

    cards: Sequence[int] = ()
    cpu: int = _PLENTY
    memory: int = _PLENTY
    slots: int = 100
    mib: int = 16384
    extra: tuple[int, ...] = ()


@dataclass
class Case:
    """All that the kernels take; `pods` are sorted by node."""

    places: Sequence[Place]
    pods: Sequence[Pod]
    work: Sequence[Work] = (Work(),)
    givers: Sequence[Giver] = (Giver(),)
    demand: Demand = field(default_factory=lambda: Demand(1, 1000, 0, 0, 0))
    extra_need: tuple[int, ...] = ()
    moves: tuple[bool, ...] = (False,)
    below_priority: int = 1 << 30
    table: NodeTable = field(init=False)
    candidates: Candidates = field(init=False)
    eligibility: Eligibility = field(init=False)

    def __post_init__(self) -> None:
        self.pods = sorted(self.pods, key=lambda pod: pod.node)
        self.table, self.candidates, self.eligibility = (
            self._table(),
            self._candidates(),
            self._eligibility(),
        )

    @property
    def extras(self) -> "tuple[array[int], array[int], array[int]]":
        """What is counted one by one: needed, free by node, held by pod."""
        none = (0,) * len(self.extra_need)
        return (
            array("q", self.extra_need),
            array("q", [n for place in self.places for n in place.extra or none]),
            array("q", [n for pod in self.pods for n in pod.extra or none]),
        )

    def _table(self) -> NodeTable:
        table = NodeTable()
        for at, place in enumerate(self.places):
            ix = table.set_node(
                NodeFacts(
                    f"n{at}",
                    free_cpu_milli=place.cpu,
                    free_memory_mib=place.memory,
                    free_pods=place.slots,
                    cpu_milli=max(0, place.cpu),
                    memory_mib=max(0, place.memory),
                )
            )
            n_cards = len(place.cards)
            table.cards.n_cards[ix], table.cards.card_mib[ix] = n_cards, place.mib
            table.cards.capacity_milli[ix] = 1000 * n_cards
            first = ix * table.cards.stride
            table.cards.card_free[first : first + n_cards] = array("i", place.cards)
        return table

    def _candidates(self) -> Candidates:
        pods, work = self.pods, self.work
        per_node = [sum(pod.node == at for pod in pods) for at in range(len(self.places))]
        members = [[p for p in pods if p.owner == w and p.is_here] for w in range(len(work))]
        return Candidates(
            start=_summed(per_node),
            owner=array("i", [pod.owner for pod in pods]),
            shape=array("i", [pod.shape for pod in pods]),
            turn=array("i", [pod.turn for pod in pods]),
            card_start=_summed([len(pod.cards) for pod in pods]),
            card_ix=array("i", [card for pod in pods for card in pod.cards]),
            card_milli=array("i", [pod.milli for pod in pods for _ in pod.cards]),
            amounts=array("q", [held for pod in pods for held in pod.amounts]),
            lost=array("q", [pod.lost for pod in pods]),
            is_here=bytearray(pod.is_here for pod in pods),
            is_core=bytearray(pod.is_core for pod in pods),
            may_move=bytearray(pod.may_move for pod in pods),
            surplus=array("i", [each.surplus for each in work]),
            whole_lost=array("q", [sum(pod.lost for pod in own) for own in members]),
            whole_amounts=array(
                "q", [sum(pod.amounts[r] for pod in own) for own in members for r in range(3)]
            ),
            is_stuck=bytearray(each.is_stuck for each in work),
            priority=array("i", [each.priority for each in work]),
            rank=array("i", [each.rank for each in work]),
            age=array("q", [each.age for each in work]),
            queue=array("i", [each.queue for each in work]),
            has=array("q", [held for giver in self.givers for held in giver.has]),
            most_pods=max(per_node, default=0),
        )

    def _eligibility(self) -> Eligibility:
        givers = self.givers
        return Eligibility(
            tiers=bytearray(giver.tiers for giver in givers),
            path_start=_summed([len(giver.path) for giver in givers]),
            path=array("i", [q for giver in givers for q in giver.path]),
            floors=array(
                "q", [kept for tier in (0, 1) for giver in givers for kept in giver.floors[tier]]
            ),
            is_safe=bytearray(pod.safe for pod in self.pods),
            is_mobile=bytearray(giver.is_mobile for giver in givers),
            moves=bytearray(self.moves),
            below_priority=self.below_priority,
        )


def _summed(lengths: Sequence[int]) -> "array[int]":
    """Where each begins when they lie one after the other, and where the last ends."""
    starts = array("i", [0])
    for length in lengths:
        starts.append(starts[-1] + length)
    return starts
