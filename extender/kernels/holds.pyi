from array import array

from extender.kernels.nodes import Need, Nodes

def count_room(
    nodes: Nodes, demand: Need, candidates: array[int], most: int, out: array[int]
) -> None: ...
