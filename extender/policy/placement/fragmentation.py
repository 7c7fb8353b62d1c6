"""Placement by fragmentation gradient descent, for pools with the rule `fgd`.

A pod goes to the node and card where it makes the least idle GPU useless to the expected pods (see
`extender.kernels.typical`). The expected pods have the shapes of the snapshot's pods, in the same
proportions. A node's scores are cached until the simulation touches that node.
"""

from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from extender.api.demand import Demand
from extender.api.units import MILLI_PER_GPU, share_milli
from extender.kernels import fragments as kernel
from extender.kernels.typical import (
    ALL_MODELS,
    MOST_MODELS,
    MOST_TYPES,
    Fragments,
    Scores,
    TypicalPod,
    fgd_measure,
)
from extender.policy.placement.simulation import Moment, Simulation
from extender.state.model import takes_model
from extender.state.nodes import NodeTable
from extender.state.snapshot import Snapshot

_NO_EXTRA_COST = array("i", [0]) * MOST_MODELS


@dataclass(slots=True)
class _NodeFigures:
    """Cached figures of all nodes, current as of the first `n_seen` touched nodes."""

    fragments: Fragments
    n_seen: int = 0
    scores: dict[Demand, tuple[Scores, list[int]]] = field(default_factory=dict)


class Fragmentation:
    """Finds the best node and card by FGD, in any pool."""

    def __init__(self, snapshot: Snapshot, sim: Simulation) -> None:
        self._snapshot = snapshot
        self._sim = sim
        self._known: dict[tuple[str, Moment], _NodeFigures] = {}
        self._model_ix: dict[int, int] = {}

    def best_place(
        self, demand: Demand, candidates: "array[int]", pool: str, moment: Moment
    ) -> tuple[int, int]:
        """The best candidate and its best card. Card -1: bin-pack chooses; -1, -1: none fits.

        Costs the nodes touched since the last call, and one pass over the candidates.
        """
        known = self._measured(pool, moment)
        table = self._sim.table(moment)
        found = known.scores.get(demand)
        if found is None:
            scores = Scores.of(len(table))
            everything = array("i", range(len(table)))
            kernel.score_nodes(table, known.fragments, demand, everything, scores)
            known.scores[demand] = scores, [known.n_seen]
        else:
            scores, seen = found
            stale = self._touched(seen[0])
            kernel.score_nodes(table, known.fragments, demand, stale, scores)
            seen[0] = known.n_seen
        ix = kernel.best_of(scores, candidates, known.fragments.model_ix, _NO_EXTRA_COST)
        return ix, scores.card[ix] if ix >= 0 else -1

    def _measured(self, pool: str, moment: Moment) -> _NodeFigures:
        """The pool's figures, updated for the touched nodes."""
        key, table = (pool, moment), self._sim.table(moment)
        known = self._known.get(key)
        if known is None:
            self._model_ix = self._model_ix or _number_models(table)
            measure = fgd_measure(_typical_pods(self._snapshot, pool, self._model_ix))
            fragments = Fragments(measure, array("i", self._model_ix.values()))
            kernel.measure_nodes(table, fragments, array("i", range(len(table))))
            known = self._known[key] = _NodeFigures(fragments)
        else:
            kernel.measure_nodes(table, known.fragments, self._touched(known.n_seen))
        known.n_seen = len(self._sim.touched)
        return known

    def _touched(self, since: int) -> "array[int]":
        return array("i", sorted(set(self._sim.touched[since:])))


def _number_models(nodes: NodeTable) -> dict[int, int]:
    """A number per card model, by node ix; all models beyond `MOST_MODELS` share the last one."""
    names = sorted(set(nodes.cards.model))
    numbers = {name: min(at, MOST_MODELS - 1) for at, name in enumerate(names)}
    return {ix: numbers[name] for ix, name in enumerate(nodes.cards.model)}


def _typical_pods(snapshot: Snapshot, pool: str, model_ix: Mapping[int, int]) -> list[TypicalPod]:
    """The most frequent shapes of all pods that may use the pool; costs one pass over the pods."""
    nodes = snapshot.nodes
    here = [ix for ix in range(len(nodes)) if nodes.pool[ix] == pool]
    card_mib = max((nodes.cards.card_mib[ix] for ix in here), default=0)
    shapes: Counter[tuple[Demand, tuple[str, ...]]] = Counter()
    for workload in snapshot.workloads.values():
        if pool in workload.pools:
            for pod in workload.pods:
                shapes[pod.demand, pod.constraints.gpu_models] += 1
    kinds: Counter[tuple[int, int, int, int]] = Counter()
    for (demand, models), count in shapes.items():
        milli = demand.milli
        if demand.gpu_memory_mib:
            milli = min(MILLI_PER_GPU, share_milli(demand.gpu_memory_mib, card_mib))
        usable = _models(nodes, models, model_ix)
        kinds[demand.cpu_milli, demand.devices, milli if demand.devices else 0, usable] += count
    frequent = sorted(kinds.items(), key=lambda kind: (-kind[1], kind[0]))[:MOST_TYPES]
    return [
        TypicalPod(cpu, devices, milli, count, usable)
        for (cpu, devices, milli, usable), count in frequent
    ]


def _models(nodes: NodeTable, wanted: tuple[str, ...], model_ix: Mapping[int, int]) -> int:
    """The card models that contain one of the `wanted` words, as bits; all if there is none."""
    if not wanted:
        return ALL_MODELS
    bits = 0
    for ix, model in enumerate(nodes.cards.model):
        if takes_model(wanted, model):
            bits |= 1 << model_ix[ix]
    return bits
