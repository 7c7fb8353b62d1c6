"""The openb replay: pods of a trace arrive at an empty cluster, and none ever ends.

Protocol (Weng et al., USENIX ATC 2023, and their simulator's experiments): the pods are shuffled.
If they request less than 130 % of the cluster's GPUs, clones of randomly drawn pods follow until
the next would exceed it; otherwise random pods are left out. A pod that fits on no node is dropped.
Entry k of a curve is the mean allocation over the arrivals after which k % (rounded) have been
requested.
"""

import random
import time
from array import array
from dataclasses import dataclass
from typing import Final

from extender.lab.openb.data import LAST_PERCENT, OpenbCluster, OpenbTrace
from extender.lab.openb.gorandom import GoRandom
from extender.lab.openb.policies import Policy, Start

#: Watches of the reference simulator's scheduler, which use the same random numbers.
_WATCHES: Final = 10
#: The traces with published results.
TRACES: Final = (
    "default",
    *("cpu050", "cpu100", "cpu200", "cpu250"),
    *("gpushare40", "gpushare60", "gpushare80", "gpushare100"),
    *("multigpu20", "multigpu30", "multigpu40", "multigpu50"),
    *("gpuspec10", "gpuspec20", "gpuspec25", "gpuspec33"),
)


@dataclass(frozen=True, slots=True)
class Run:
    """One replay: `curve[k]` is the allocation in % of all GPUs at k % arrived, k = 0 to 130.

    `took_s` is the time from the empty cluster to the last pod, without reading files.
    """

    trace: str
    policy: str
    seed: int
    curve: list[float]
    n_arrived: int
    n_placed: int
    took_s: float


def replay_once(cluster: OpenbCluster, trace: OpenbTrace, policy: type[Policy], seed: int) -> Run:
    """Replay the trace with one policy. With the same seed, all policies get the same arrivals."""
    began_s = time.perf_counter()
    arrivals, order = draw(cluster, trace, seed)
    rng = random.Random(seed)  # noqa: S311 - a simulation, no secret
    filling = policy(Start(cluster, order, trace, rng))
    curve = _Curve(cluster.total_milli)
    n_placed = 0
    for at in arrivals:
        shape = trace.shapes[at]
        is_placed = filling.place(shape)
        n_placed += is_placed
        curve.count(shape.demand.total_milli, is_placed)
    took_s = time.perf_counter() - began_s
    return Run(trace.name, policy.name, seed, curve.means(), len(arrivals), n_placed, took_s)


def draw(cluster: OpenbCluster, trace: OpenbTrace, seed: int) -> tuple[list[int], "array[int]"]:
    """The shapes of the arriving pods, and the nodes in the order that breaks ties.

    Drawn as in the reference simulator, so each seed gives the same arrivals.
    """
    rng = GoRandom(seed)
    rng.int63()
    arrivals = list(trace.pods)
    rng.shuffle(arrivals)
    demands = [shape.demand for shape in trace.shapes]
    asked = sum(demands[at].total_milli for at in arrivals)
    limit = cluster.total_milli * LAST_PERCENT // 100
    if asked > limit:
        while asked > limit:
            asked -= demands[arrivals.pop(rng.intn(len(arrivals)))].total_milli
    elif 0 < asked < limit:
        clone = trace.pods[rng.intn(len(trace.pods))]
        # Only one card of the next pod is counted, as in the reference.
        while asked + demands[clone].milli <= limit:
            arrivals.append(clone)
            asked += demands[clone].total_milli
            clone = trace.pods[rng.intn(len(trace.pods))]
    # Ten watches start here, and each draws its restart time.
    for _ in range(_WATCHES):
        rng.int63()
    by_name = sorted(range(len(cluster.nodes)), key=cluster.nodes.cards.names.__getitem__)
    prefixes = rng.perm(len(by_name))
    return arrivals, array("i", (ix for _, ix in sorted(zip(prefixes, by_name, strict=True))))


class _Curve:
    """The allocation by arrived demand, in whole percent."""

    def __init__(self, total_milli: int) -> None:
        self._total = total_milli
        self._arrived = self._allocated = 0
        self._sums = [0] * (LAST_PERCENT + 1)
        self._counts = [0] * (LAST_PERCENT + 1)

    def count(self, milli: int, is_placed: bool) -> None:
        """Count an arrived pod that requests `milli` in total."""
        self._arrived += milli
        self._allocated += milli if is_placed else 0
        percent = (200 * self._arrived + self._total) // (2 * self._total)
        # The last clone of several cards may exceed the end.
        if percent <= LAST_PERCENT:
            self._sums[percent] += self._allocated
            self._counts[percent] += 1

    def means(self) -> list[float]:
        """Entries 0 to 130; a percent without arrivals has the previous value."""
        curve, value = [], 0.0
        for total, count in zip(self._sums, self._counts, strict=True):
            value = 100 * total / (count * self._total) if count else value
            curve.append(value)
        return curve
