from array import array

from extender.kernels.nodes import Need, Nodes

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
