from array import array
from typing import Final, Protocol

BINPACK: Final = 0
SPREAD: Final = 1
BEST_FIT: Final = 2
FIRST_FIT: Final = 3

class Cards(Protocol):
    stride: int
    card_free: array[int]
    card_mib: array[int]
    n_cards: array[int]
    capacity_milli: array[int]

class Nodes(Protocol):
    @property
    def cards(self) -> Cards: ...
    free_cpu_milli: array[int]
    free_memory_mib: array[int]
    free_pods: array[int]
    cpu_milli: array[int]
    memory_mib: array[int]

class Need(Protocol):
    @property
    def devices(self) -> int: ...
    @property
    def milli(self) -> int: ...
    @property
    def gpu_memory_mib(self) -> int: ...
    @property
    def cpu_milli(self) -> int: ...
    @property
    def memory_mib(self) -> int: ...

def fit_nodes(cards: Cards, demand: Need, out: bytearray) -> None: ...
def score_nodes(cards: Cards, demand: Need, rule: int, out: array[int]) -> None: ...
def best_node(nodes: Nodes, demand: Need, candidates: array[int], rule: int) -> int: ...
def pick_cards(cards: Cards, ix: int, demand: Need, rule: int) -> list[int]: ...
def count_room(
    nodes: Nodes, demand: Need, candidates: array[int], most: int, out: array[int]
) -> None: ...
