from array import array
from typing import Final

from extender.kernels.appraisal import Herd, Terms
from extender.kernels.nodes import Need, Nodes

IMPOSSIBLE: Final[int]

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
