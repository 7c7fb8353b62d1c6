from array import array
from typing import Protocol

from extender.kernels.nodes import Need, Nodes

class Typical(Protocol):
    cpu_milli: array[int]
    devices: array[int]
    milli: array[int]
    weight: array[int]
    models: array[int]
    draws: int
    is_deep: bool
    chance: array[int]
    steps: array[int]

class Fragments(Protocol):
    @property
    def typical(self) -> Typical: ...
    model_ix: array[int]
    waste: array[int]

class Scores(Protocol):
    score: array[int]
    card: array[int]

def measure_nodes(nodes: Nodes, fragments: Fragments, candidates: array[int]) -> None: ...
def score_nodes(
    nodes: Nodes, fragments: Fragments, demand: Need, candidates: array[int], scores: Scores
) -> None: ...
def best_of(
    scores: Scores, candidates: array[int], model_ix: array[int], cost: array[int]
) -> int: ...
