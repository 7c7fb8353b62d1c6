from array import array
from typing import Final, Protocol

from extender.kernels.nodes import Need, Nodes

IMPOSSIBLE: Final[int]

class Herd(Protocol):
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
    age: array[int]
    queue: array[int]
    has: array[int]
    most_pods: int

class Terms(Protocol):
    tiers: bytearray
    path_start: array[int]
    path: array[int]
    floors: array[int]
    is_safe: bytearray
    is_mobile: bytearray
    moves: bytearray
    below_priority: int

def sum_idle(nodes: Nodes, candidates: array[int], out: array[int]) -> None: ...
def sum_units(herd: Herd, total: array[int], largest: array[int]) -> None: ...

class Room:
    def __init__(
        self,
        nodes: Nodes,
        candidates: array[int],
        herd: Herd,
        terms: Terms,
        demand: Need,
        extra_need: array[int],
        extra_free: array[int],
        extra_held: array[int],
    ) -> None: ...
    def update(self, at: array[int]) -> None: ...
    def update_all(self) -> None: ...
    def price(self, at: int) -> tuple[int, int, int]: ...
    def exclude(self, at: int) -> None: ...
    def cheapest(self) -> int: ...
    def choose(self, ix: int, out: array[int]) -> int: ...
    def capacity(self, most: int) -> int: ...
