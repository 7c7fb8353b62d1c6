from array import array

from extender.kernels.nodes import Need, Nodes

def count_room(
    nodes: Nodes, demand: Need, candidates: array[int], most: int, out: array[int]
) -> None: ...

class Holds:
    def __init__(self, nodes: Nodes, demand: Need, rule: int) -> None: ...
    def has_room(self, candidates: array[int]) -> bool: ...
