from array import array
from typing import Protocol

from extender.kernels.nodes import Need, Nodes

class Pods(Protocol):
    start: array[int]
    card_start: array[int]
    card_ix: array[int]
    card_milli: array[int]
    amounts: array[int]
    most_pods: int

class Vacancy:
    def __init__(
        self,
        nodes: Nodes,
        herd: Pods,
        demand: Need,
        extra_need: array[int],
        extra_free: array[int],
        extra_held: array[int],
    ) -> None: ...
    def room(self, ix: int, gone: array[int], most: int) -> int: ...
