from array import array
from typing import Final, Protocol

from extender.kernels.fragments import Scores
from extender.kernels.nodes import Need, Nodes

DOT_PRODUCT: Final = 0
CLUSTERING: Final = 1
PACKING: Final = 2
BEST_FIT: Final = 3

class Baseline(Protocol):
    @property
    def rule(self) -> int: ...
    @property
    def tags(self) -> array[int]: ...

def score_nodes(
    nodes: Nodes, baseline: Baseline, demand: Need, candidates: array[int], scores: Scores
) -> None: ...
