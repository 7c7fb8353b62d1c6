from array import array
from typing import Protocol

from extender.kernels.nodes import Nodes

class Workloads(Protocol):
    whole_amounts: array[int]
    queue: array[int]

def sum_idle(nodes: Nodes, candidates: array[int], out: array[int]) -> None: ...
def sum_units(workloads: Workloads, total: array[int], largest: array[int]) -> None: ...
