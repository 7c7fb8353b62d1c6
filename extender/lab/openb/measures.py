"""Measures of typical pods that only the replays use: `frag`, and FGD's as published.

**frag** (ours) differs in three points.

1. CPU: `left` also counts what stays idle after as many pods m as fit, and the two counts are
   averaged. So CPU-heavy pods go to nodes with plenty of CPU.
2. Arrivals: a node need not take the next pod, but one that suits it. So its fragmentation is the
   minimum `left` of the next four pods, in expectation over all draws of four typical pods.
3. Scarce card models: a model costs ten points times its pressure, which is the typical demand per
   free GPU that may serve it, relative to the cluster's mean (`cost_of_models`).

A point is 40 milli, as elsewhere. Memory is not part of the measure; it only has to fit.

FGD's published simulator adds doubles, whose rounding decides ties; a replay that is compared with
it has to add as it does (`Published`, and the kernel of that name).
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from extender.api.demand import MAX_DEVICES
from extender.api.units import MILLI_PER_GPU
from extender.kernels.typical import MOST_MODELS, Typical, TypicalPod, fgd_measure, measure_of

_POINT_MILLI: Final = 40
_DRAWS: Final = 4
#: The sum of all weights of `frag`.
_TOTAL_WEIGHT: Final = 1 << 12
#: The denominator of the chances of `frag`: times 2 x 64 cards of 1000 milli they fit the kernel's
#: int64.
_CASES: Final = 1 << 24
_POINTS_PER_MEAN_PRESSURE: Final = 10
_PRECISION: Final = 1_000_000


@dataclass(slots=True)
class Published:
    """FGD's measure as in its authors' simulator: columns as in Typical, rows as in Fragments.

    `share` is each type's part of all typical pods; `waste` (float64[n]) is in milli.
    """

    cpu_milli: "array[int]"
    devices: "array[int]"
    milli: "array[int]"
    models: "array[int]"
    share: "array[float]"
    model_ix: "array[int]"
    waste: "array[float]" = field(init=False)

    def __post_init__(self) -> None:
        self.waste = array("d", bytes(8 * len(self.model_ix)))


def published_measure(pods: Sequence[TypicalPod], n_pods: int, model_ix: "array[int]") -> Published:
    """FGD's measure in doubles, if the pods are typical of `n_pods`.

    A share is divided twice, as in the published simulator: both divisions round.
    """
    held = sum(pod.weight for pod in pods) / n_pods
    table = fgd_measure(pods)
    share = array("d", (pod.weight / n_pods / held for pod in pods))
    return Published(table.cpu_milli, table.devices, table.milli, table.models, share, model_ix)


def frag_measure(pods: Sequence[TypicalPod]) -> Typical:
    """The measure of frag; a score is a number of points of 40 milli, plus the same amount."""
    weighed = _scale(pods)
    chance = [rest**_DRAWS * _CASES // _TOTAL_WEIGHT**_DRAWS for rest in range(_TOTAL_WEIGHT + 1)]
    point = 2 * _CASES * _POINT_MILLI
    most = MAX_DEVICES * MILLI_PER_GPU // _POINT_MILLI
    steps = array("q", (at * point - point // 2 for at in range(-most, most + 1)))
    return measure_of(weighed, draws=_DRAWS, is_deep=True, chance=chance, steps=steps)


def cost_of_models(pods: Sequence[TypicalPod], free_milli: Mapping[int, int]) -> "array[int]":
    """The cost of a card of each model in points (int32[64]), by the free milli of each model.

    The pressure on a model is the sum, over the typical pods that may use it, of their requested
    GPUs divided by the free GPUs that they may use; the cost is ten times its ratio to the whole
    cluster's pressure. If no pod names models, all models cost the same.
    """
    demand: dict[int, int] = {}
    for pod in pods:
        demand[pod.models] = demand.get(pod.models, 0) + pod.weight * pod.devices * pod.milli
    cost = array("i", [0]) * MOST_MODELS
    asked, free = sum(demand.values()), sum(free_milli.values())
    pressure = dict.fromkeys(free_milli, 0)
    for models, milli in demand.items():
        usable = [model for model in free_milli if models >> model & 1]
        room = sum(free_milli[model] for model in usable)
        for model in usable if room else ():
            pressure[model] += milli * _PRECISION // room
    for model, pressed in pressure.items() if asked else ():
        scaled = _POINTS_PER_MEAN_PRESSURE * pressed * free // asked
        cost[model] = min((scaled + _PRECISION // 2) // _PRECISION, 1 << 30)
    return cost


def _scale(pods: Sequence[TypicalPod]) -> list[TypicalPod]:
    """The pods with weights that sum to `_TOTAL_WEIGHT`, by largest remainder; without zeros."""
    total = sum(pod.weight for pod in pods)
    shares = [divmod(pod.weight * _TOTAL_WEIGHT, total) for pod in pods]
    short = _TOTAL_WEIGHT - sum(share for share, _ in shares)
    by_rest = sorted(range(len(pods)), key=lambda at: (-shares[at][1], at))
    weights = [share for share, _ in shares]
    for at in by_rest[:short]:
        weights[at] += 1
    return [
        TypicalPod(pod.cpu_milli, pod.devices, pod.milli, weight, pod.models)
        for pod, weight in zip(pods, weights, strict=True)
        if weight
    ]
