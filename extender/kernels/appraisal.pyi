from array import array
from typing import Protocol

from extender.kernels.vacancy import Pods

class Herd(Pods, Protocol):
    owner: array[int]
    shape: array[int]
    turn: array[int]
    lost: array[int]
    is_here: bytearray
    is_core: bytearray
    may_move: bytearray
    surplus: array[int]
    whole_lost: array[int]
    whole_amounts: array[int]
    is_stuck: bytearray
    priority: array[int]
    rank: array[int]
    age: array[int]
    queue: array[int]
    has: array[int]

class Terms(Protocol):
    tiers: bytearray
    path_start: array[int]
    path: array[int]
    floors: array[int]
    is_safe: bytearray
    is_mobile: bytearray
    moves: bytearray
    below_priority: int

class Appraisal:
    def __init__(self, herd: Herd, terms: Terms) -> None: ...
    def price(self, p: int, chosen: array[int]) -> tuple[int, int, int, int] | None: ...
