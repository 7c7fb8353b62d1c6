"""The tables that the kernel `fragments` reads: the expected pods, and a measure of fragmentation.

Typical pods represent the expected pods and their proportions. What a typical pod m leaves idle on
a node is `left(m)`:

- all idle GPU, if m requests no GPU or does not fit by card model, CPU or cards;
- otherwise the idle GPU on cards too small for m.

**FGD** (Weng et al., USENIX ATC 2023). The fragmentation of a node is the mean of `left` over the
typical pods. A pod goes where fragmentation decreases most, by the integer score
trunc(100 / (1 + e^(-decrease / 1000 milli))). That integer is part of the algorithm: near a
decrease of 0 a point is 40 milli, most nodes tie, and the first of them in a fixed order is filled.
Sums are exact here.

Memory must fit but is not part of the measure.
"""

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from extender.api.units import MILLI_PER_GPU

#: Card models have numbers below this, so that a set of them fits a uint64.
MOST_MODELS: Final = 64
ALL_MODELS: Final = (1 << MOST_MODELS) - 1
MOST_TYPES: Final = 512


@dataclass(frozen=True, slots=True)
class TypicalPod:
    """A shape of expected pods, with its frequency `weight`.

    `milli` is per device; `models` is the set of card models that it may use, as bits.
    """

    cpu_milli: int
    devices: int
    milli: int
    weight: int = 1
    models: int = ALL_MODELS


@dataclass(slots=True)
class Typical:
    """Typical pods by columns, and the parameters of the measure. Not to be changed.

    `cpu_milli` is int64[t], `devices`, `milli` and `weight` int32[t], `models` uint64[t].
    `chance[r]` (int64[sum of weight + 1]) is in how many of `chance[-1]` cases all draws are among
    types with total weight r. `is_deep` adds what remains after as many pods as fit. Fragmentation
    is in units of 1/`unit` milli. `steps` (int64[s], ascending) are the decreases that each earn a
    point.
    """

    cpu_milli: "array[int]"
    devices: "array[int]"
    milli: "array[int]"
    weight: "array[int]"
    models: "array[int]"
    chance: "array[int]"
    steps: "array[int]"
    draws: int
    is_deep: bool
    unit: int


@dataclass(slots=True)
class Fragments:
    """The fragmentation of a node table by one measure; rows as in the table.

    `model_ix` is int32[n]: the number of the node's card model. `waste` is int64[n]: the node's
    fragmentation when `measure_nodes` last measured it.
    """

    typical: Typical
    model_ix: "array[int]"
    waste: "array[int]" = field(init=False)

    def __post_init__(self) -> None:
        self.waste = array("q", bytes(8 * len(self.model_ix)))


@dataclass(slots=True)
class Scores:
    """Scores of one demand on every node: int32[n] each, see `fragments.score_nodes`."""

    score: "array[int]"
    card: "array[int]"

    @classmethod
    def of(cls, n_nodes: int) -> "Scores":
        """Scores for `n_nodes`, all -1: does not fit."""
        return cls(array("i", [-1]) * n_nodes, array("i", [-1]) * n_nodes)


def fgd_measure(pods: Sequence[TypicalPod]) -> Typical:
    """The measure of FGD; its scores are 0 to 99."""
    total = sum(pod.weight for pod in pods)
    logistic = (math.log(point / (100 - point)) for point in range(1, 100))
    steps = array("q", (math.ceil(MILLI_PER_GPU * total * fall) for fall in logistic))
    return measure_of(pods, draws=1, is_deep=False, chance=range(total + 1), steps=steps)


def measure_of(
    pods: Sequence[TypicalPod],
    *,
    draws: int,
    is_deep: bool,
    chance: Iterable[int],
    steps: "array[int]",
) -> Typical:
    """The pods by columns.

    Raises ValueError if there are none or too many, or if one requests cards but less than 1 or
    more than 1000 milli.
    """
    if not 0 < len(pods) <= MOST_TYPES:
        raise ValueError(f"{len(pods)} typical pods; between 1 and {MOST_TYPES} are possible")
    if any(pod.devices and not 0 < pod.milli <= MILLI_PER_GPU for pod in pods):
        raise ValueError("a typical pod requests cards, but less than 1 or more than 1000 milli")
    cases = array("q", chance)
    return Typical(
        cpu_milli=array("q", (pod.cpu_milli for pod in pods)),
        devices=array("i", (pod.devices for pod in pods)),
        milli=array("i", (pod.milli for pod in pods)),
        weight=array("i", (pod.weight for pod in pods)),
        models=array("Q", (pod.models for pod in pods)),
        chance=cases,
        steps=steps,
        draws=draws,
        is_deep=is_deep,
        unit=cases[-1] * (2 if is_deep else 1),
    )
