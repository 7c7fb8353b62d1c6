from array import array
from typing import Final, Protocol

from extender.kernels.nodes import Need, Nodes

IMPOSSIBLE: Final[int]

class Pods(Protocol):
    start: array[int]
    owner: array[int]
    shape: array[int]
    turn: array[int]
    card_start: array[int]
    card_ix: array[int]
    card_milli: array[int]
    amounts: array[int]
    lost: array[int]
    is_here: bytearray
    is_core: bytearray
    may_move: bytearray
    surplus: array[int]
    whole_lost: array[int]
    whole_amounts: array[int]
    is_stuck: bytearray
    priority: array[int]
    rank: array[int]
    age: array[int]
    queue: array[int]
    has: array[int]
    most_pods: int

class Eligibility(Protocol):
    tiers: bytearray
    path_start: array[int]
    path: array[int]
    floors: array[int]
    is_safe: bytearray
    is_mobile: bytearray
    moves: bytearray
    below_priority: int

class NodeVictims:
    def __init__(
        self,
        nodes: Nodes,
        node_ixs: array[int],
        pods: Pods,
        eligibility: Eligibility,
        demand: Need,
        counted_need: array[int],
        counted_free: array[int],
        counted_held: array[int],
    ) -> None: ...
    def update(self, nodes: array[int]) -> None: ...
    def choose(self, ix: int, out: array[int]) -> int: ...
    def cost(self, at: int) -> tuple[int, int, int]: ...
    def exclude(self, at: int) -> None: ...
    def cheapest(self) -> int: ...
    def capacity(self, most: int) -> int: ...
