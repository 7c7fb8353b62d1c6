from array import array
from typing import Protocol

from extender.kernels.fragments import Scores
from extender.kernels.nodes import Need, Nodes

class Published(Protocol):
    cpu_milli: array[int]
    devices: array[int]
    milli: array[int]
    models: array[int]
    share: array[float]
    model_ix: array[int]
    waste: array[float]

def measure_nodes(nodes: Nodes, published: Published, candidates: array[int]) -> None: ...
def score_nodes(
    nodes: Nodes, published: Published, demand: Need, candidates: array[int], scores: Scores
) -> None: ...
