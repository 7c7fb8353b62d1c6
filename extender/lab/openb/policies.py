"""The policies of the openb replay: each chooses a node and cards for the next pod.

Six are those of the FGD paper (Weng et al., USENIX ATC 2023), from their published reference
simulator; `frag` is ours (see `measures`). All get the same input: free resources of the nodes, the
pod, and the typical kinds of pods. A placed pod stays.

Pods only arrive, so between two pods of one shape few nodes change. The scores of each shape are
kept, and only nodes that have changed since are scored again.
"""

import random
from abc import ABC, abstractmethod
from array import array
from dataclasses import dataclass
from typing import ClassVar, Final

from extender.api.demand import Demand
from extender.api.kinds import CardShare
from extender.api.units import MILLI_PER_GPU
from extender.kernels import fragments, nodes
from extender.kernels.typical import MOST_MODELS, Fragments, Scores
from extender.lab.kernels import baselines, published
from extender.lab.openb.data import OpenbCluster, OpenbTrace, PodKind
from extender.lab.openb.measures import cost_of_models, frag_measure, published_measure

_NO_COST: Final = array("i", [0]) * MOST_MODELS
_BINPACK: Final = 0


@dataclass(slots=True)
class Start:
    """The initial state of a policy: an empty cluster, and its nodes in tie-breaking order."""

    cluster: OpenbCluster
    order: "array[int]"
    trace: OpenbTrace
    rng: random.Random


class Policy(ABC):
    """A cluster that fills up under one placement rule."""

    name: ClassVar[str]

    def __init__(self, start: Start) -> None:
        self.nodes = start.cluster.nodes.copy()
        self.model_ix = start.cluster.model_ix
        self._order = start.order
        self._allowed: dict[int, array[int]] = {}

    def place(self, shape: PodKind) -> bool:
        """Place a pod of `shape`; False if it fits on no node."""
        ix = self.choose(shape)
        if ix < 0:
            return False
        milli = shape.demand.milli
        cards = [CardShare(at, milli, 0) for at in self.pick_cards(ix, shape)]
        self.nodes.hold(ix, shape.demand, cards)
        self.note(ix, shape)
        return True

    @abstractmethod
    def choose(self, shape: PodKind) -> int:
        """The node for a pod of `shape`, or -1 if it fits on none."""

    def pick_cards(self, ix: int, shape: PodKind) -> list[int]:
        """The cards of node `ix` for it: the tightest that fit, the first of equals."""
        return nodes.pick_cards(self.nodes.cards, ix, shape.demand, _BINPACK)

    def note(self, ix: int, shape: PodKind) -> None:  # noqa: B027 - most policies remember nothing
        """A pod of `shape` has been placed on node `ix`."""

    def allowed(self, models: int) -> "array[int]":
        """Nodes with a card model among `models`, in the order that breaks ties."""
        found = self._allowed.get(models)
        if found is None:
            found = array("i", (ix for ix in self._order if models >> self.model_ix[ix] & 1))
            self._allowed[models] = found
        return found


class RandomPolicy(Policy):
    """A random node that fits the pod, and for a fraction a random card."""

    name = "random"

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        self._rng = start.rng
        self._feasible: dict[PodKind, array[int]] = {}

    def choose(self, shape: PodKind) -> int:
        """A random node of those that fit the pod."""
        # A node that once did not fit a shape never will, since pods do not end.
        feasible = self._feasible.get(shape)
        if feasible is None:
            feasible = self._feasible[shape] = self.allowed(shape.models)[:]
        while feasible:
            at = self._rng.randrange(len(feasible))
            one = feasible[at : at + 1]
            if nodes.best_node(self.nodes, shape.demand, one, _BINPACK) >= 0:
                return one[0]
            feasible[at] = feasible[-1]
            feasible.pop()
        return -1

    def pick_cards(self, ix: int, shape: PodKind) -> list[int]:
        """For a fraction, a random card of those that fit it."""
        demand = shape.demand
        if demand.devices != 1 or demand.milli == MILLI_PER_GPU:
            return super().pick_cards(ix, shape)
        free = self.nodes.cards.free_of(ix)
        return [self._rng.choice([at for at, milli in enumerate(free) if milli >= demand.milli])]


class ScoringPolicy(Policy):
    """The node with the highest score, the first of equals."""

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        self._scores: dict[PodKind, Scores] = {}
        #: By set of models: the nodes that have changed, oldest first.
        self._changed: dict[int, array[int]] = {}
        self._seen: dict[PodKind, int] = {}

    @abstractmethod
    def rescore(self, demand: Demand, stale: "array[int]", scores: Scores) -> None:
        """Update the scores of the `stale` nodes."""

    def cost(self, shape: PodKind) -> "array[int]":
        """The cost in points of each card model for a pod of `shape`: int32[64]."""
        return _NO_COST

    def choose(self, shape: PodKind) -> int:
        """The node with the highest score minus its cost, the first of equals."""
        everyone = self.allowed(shape.models)
        scores = self._scores_of(shape, everyone)
        return fragments.best_of(scores, everyone, self.model_ix, self.cost(shape))

    def note(self, ix: int, shape: PodKind) -> None:
        """Remember that the scores of node `ix` are stale."""
        model = self.model_ix[ix]
        for models, changed in self._changed.items():
            if models >> model & 1:
                changed.append(ix)

    def card_of(self, ix: int, shape: PodKind) -> int:
        """The card that the score of node `ix` is for, or -1 if it is for none."""
        return self._scores[shape].card[ix]

    def _scores_of(self, shape: PodKind, everyone: "array[int]") -> Scores:
        changed = self._changed.setdefault(shape.models, array("i"))
        seen = self._seen.get(shape)
        self._seen[shape] = len(changed)
        if seen is None:
            scores = self._scores[shape] = Scores.of(len(self.nodes))
            stale = everyone
        else:
            scores = self._scores[shape]
            stale = everyone if len(changed) - seen > len(everyone) else changed[seen:]
        if stale:
            self.rescore(shape.demand, stale, scores)
        return scores


class _Measuring(ScoringPolicy):
    """Chooses the node, and a fraction's card, by the effect on fragmentation."""

    @abstractmethod
    def measure_nodes(self, stale: "array[int]") -> None:
        """Recompute the fragmentation of these nodes."""

    def pick_cards(self, ix: int, shape: PodKind) -> list[int]:
        """For a fraction, the card that reduces fragmentation most."""
        card = self.card_of(ix, shape)
        return [card] if card >= 0 else super().pick_cards(ix, shape)

    def note(self, ix: int, shape: PodKind) -> None:
        """Recompute the node's fragmentation."""
        super().note(ix, shape)
        self.measure_nodes(array("i", [ix]))


class FgdPolicy(_Measuring):
    """Fragmentation gradient descent, with sums as in the published simulator."""

    name = "fgd"

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        trace = start.trace
        self._published = published_measure(trace.typical, len(trace.pods), self.model_ix)
        self.measure_nodes(self._order)

    def measure_nodes(self, stale: "array[int]") -> None:
        """By the published measure."""
        published.measure_nodes(self.nodes, self._published, stale)

    def rescore(self, demand: Demand, stale: "array[int]", scores: Scores) -> None:
        """By the decrease of fragmentation."""
        published.score_nodes(self.nodes, self._published, demand, stale, scores)


class FragPolicy(_Measuring):
    """Our own policy; see `measures`."""

    name = "frag"

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        self._typical = start.trace.typical
        self._free_milli: dict[int, int] = {}
        for ix in start.order:
            free = sum(self.nodes.cards.free_of(ix))
            model = self.model_ix[ix]
            self._free_milli[model] = self._free_milli.get(model, 0) + free
        self._fragments = Fragments(frag_measure(self._typical), self.model_ix)
        self.measure_nodes(self._order)

    def measure_nodes(self, stale: "array[int]") -> None:
        """By our measure."""
        fragments.measure_nodes(self.nodes, self._fragments, stale)

    def rescore(self, demand: Demand, stale: "array[int]", scores: Scores) -> None:
        """By the decrease of fragmentation."""
        fragments.score_nodes(self.nodes, self._fragments, demand, stale, scores)

    def cost(self, shape: PodKind) -> "array[int]":
        """Scarce card models are expensive; pods without GPUs pay nothing."""
        if not shape.demand.wants_gpu:
            return _NO_COST
        return cost_of_models(self._typical, self._free_milli)

    def note(self, ix: int, shape: PodKind) -> None:
        """Also update the free GPUs of the node's model."""
        super().note(ix, shape)
        self._free_milli[self.model_ix[ix]] -= shape.demand.total_milli


class _Baseline(ScoringPolicy):
    """A packing policy of the paper; `rule` is a constant of `extender.lab.kernels.baselines`."""

    rule: ClassVar[int]

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        #: Kinds of pods on each node, as bits for the kernel: uint64[n].
        self.tags = array("Q", [0]) * len(self.nodes)

    def rescore(self, demand: Demand, stale: "array[int]", scores: Scores) -> None:
        """By the policy's rule."""
        baselines.score_nodes(self.nodes, self, demand, stale, scores)

    def note(self, ix: int, shape: PodKind) -> None:
        """Remember the kind of pod on the node."""
        super().note(ix, shape)
        demand = shape.demand
        if demand.devices:
            self.tags[ix] |= 1 << (demand.devices if demand.milli == MILLI_PER_GPU else 0)


class DotProductPolicy(_Baseline):
    """The minimum dot product of the node's free resources and the pod's request (as in Tetris)."""

    name, rule = "dotprod", baselines.DOT_PRODUCT


class ClusteringPolicy(_Baseline):
    """Pods of the same kind together (as in Gandiva)."""

    name, rule = "gpuclustering", baselines.CLUSTERING


class PackingPolicy(_Baseline):
    """Shared cards first, then used nodes, then small ones (as in MLaaS)."""

    name, rule = "gpupacking", baselines.PACKING


class BestFitPolicy(_Baseline):
    """The least CPU and GPU left."""

    name, rule = "bestfit", baselines.BEST_FIT


POLICIES: Final[dict[str, type[Policy]]] = {
    policy.name: policy
    for policy in (
        FragPolicy,
        FgdPolicy,
        BestFitPolicy,
        PackingPolicy,
        ClusteringPolicy,
        DotProductPolicy,
        RandomPolicy,
    )
}
