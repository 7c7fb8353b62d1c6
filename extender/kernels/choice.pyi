from array import array

from extender.kernels.appraisal import Herd, Terms
from extender.kernels.nodes import Need, Nodes

class Choice:
    def __init__(
        self,
        nodes: Nodes,
        herd: Herd,
        terms: Terms,
        demand: Need,
        extra_need: array[int],
        extra_free: array[int],
        extra_held: array[int],
    ) -> None: ...
    def needed(
        self, ix: int, pods: array[int]
    ) -> tuple[list[int], tuple[int, int, int]] | None: ...
