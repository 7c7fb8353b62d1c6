from array import array

from extender.kernels.nodes import Need, Nodes

def count_room(
    nodes: Nodes, demand: Need, candidates: array[int], most: int, out: array[int]
) -> None: ...
def fill_nodes(
    nodes: Nodes,
    demand: Need,
    candidates: array[int],
    rule: int,
    out_ix: array[int],
    out_cards: array[int],
) -> int: ...
def pack_nodes(
    nodes: Nodes,
    demand: Need,
    candidates: array[int],
    rule: int,
    out_ix: array[int],
    out_cards: array[int],
) -> int: ...
