"""The Python twin of `published.pyx`: sums of typical pods, grouped by the resource they lack."""

import math
from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tests.twins.fragments_twin import best_place, free_of, left_with

if TYPE_CHECKING:
    from extender.kernels.fragments import Scores
    from extender.kernels.nodes import Need, Nodes
    from extender.lab.kernels.published import Published

#: In the order in which the published simulator adds them.
_LACKS = ("cpu and gpu", "gpu", "cpu", "nothing, without gpu", "cpu, without gpu", "access")


def measure_nodes(nodes: "Nodes", published: "Published", candidates: "array[int]") -> None:
    """As `published.measure_nodes`."""
    for ix in candidates:
        free, cpu = free_of(nodes, ix), nodes.free_cpu_milli[ix]
        published.waste[ix] = _waste(published, published.model_ix[ix], free, cpu)


def score_nodes(
    nodes: "Nodes",
    published: "Published",
    demand: "Need",
    candidates: "array[int]",
    scores: "Scores",
) -> None:
    """As `published.score_nodes`."""

    def rate(ix: int, taken: Sequence[int]) -> int:
        free, cpu = left_with(nodes, demand, ix, taken)
        fall = published.waste[ix] - _waste(published, published.model_ix[ix], free, cpu)
        return int(1 / (1 + math.exp(-(fall / 1000))) * 100)

    for ix in candidates:
        scores.score[ix], scores.card[ix] = best_place(nodes, demand, ix, rate)


def _waste(published: "Published", model: int, free: Sequence[int], cpu: int) -> float:
    """Milli that typical pods cannot use, in doubles."""
    parts: dict[str, list[float]] = {lack: [] for lack in _LACKS}
    idle = [max(0, milli) for milli in free]
    for t, share in enumerate(published.share):
        devices, need = published.devices[t], published.milli[t]
        has_cpu = cpu >= published.cpu_milli[t]
        has_gpu = sum(milli >= need for milli in idle) >= devices
        if devices == 0:
            lack = "nothing, without gpu" if has_cpu else "cpu, without gpu"
        elif not published.models[t] >> model & 1:
            lack = "access"
        elif has_cpu and has_gpu:
            parts["gpu"].append(share * sum(milli for milli in idle if milli < need))
            continue
        else:
            lack = "gpu" if has_cpu else "cpu" if has_gpu else "cpu and gpu"
        parts[lack].append(share * sum(idle))
    return _added(_added(part) for part in parts.values())


def _added(terms: Iterable[float]) -> float:
    """The sum, rounded after each term; `sum` of newer Pythons rounds only once."""
    total = 0.0
    for term in terms:
        total += term
    return total
