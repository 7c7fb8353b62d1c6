"""Which nodes a pod's constraints, and the nodes' labels and taints, allow; ignores free capacity.

The rules are kube-scheduler's for node selectors, required node affinity and taints
(`plugins/nodeaffinity`, `plugins/tainttoleration`), so that kube-scheduler accepts the plan.
"""

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from extender.api.demand import BY_CLAIMS, Delivery
from extender.api.objects import NodeSelector, NodeSelectorTerm, Taint, Toleration
from extender.api.selectors import MOST_VALUES, meets
from extender.state.model import Constraints, takes_model
from extender.state.nodes import BY_NODE, NodeTable

_SOFT: Final = "PreferNoSchedule"
#: Why a node that does not offer the delivery is refused, by the delivery that the pod needs.
_OTHER_DELIVERY: Final[Mapping[Delivery, str]] = {
    "resource": "give cards by ResourceClaims only",
    "agent": "give cards by ResourceClaims only",
    "claim": "give no whole cards by ResourceClaims",
    "share": "give no shares by ResourceClaims",
}


@dataclass(slots=True, frozen=True, eq=False)
class NodeSet:
    """Nodes (by ix) on which pods must be placed; None: all nodes of the pool."""

    name: str = ""
    nodes: frozenset[int] | None = None


WHOLE_POOL: Final = NodeSet()


class NodeFilter:
    """Candidate nodes per pool, Constraints object and frame; each result is cached."""

    def __init__(self, nodes: NodeTable, now_s: int, kept: frozenset[int] = frozenset()) -> None:
        """`kept` are nodes (by ix) with a nomination for a share that a claim requests."""
        self._nodes = nodes
        self._now_s = now_s
        self._kept = kept
        # Computed at the first call, since a cycle without pending pods does not need it.
        self._ready: dict[str, list[int]] | None = None
        self._has_counted = any(nodes.free_counted)
        self._has_claims = any(offers is not BY_NODE for offers in nodes.offers)
        self._avoided = frozenset(
            ix
            for ix, taints in enumerate(nodes.taints)
            if taints and any(taint.effect == _SOFT for taint in taints)
        )
        # Keeps constraints and frames alive, so that their ids are not reused.
        self._found: dict[tuple[str, int, int], tuple[Constraints, NodeSet, array[int]]] = {}

    def ready(self, pool: str) -> list[int]:
        """The ready nodes of the pool, in order of their names."""
        if self._ready is None:
            self._ready = self._find_ready()
        return self._ready.get(pool, [])

    def _find_ready(self) -> dict[str, list[int]]:
        """The ready nodes by pool, in order of their names."""
        nodes, found = self._nodes, dict[str, list[int]]()
        for name in sorted(nodes.cards.ix):
            ix = nodes.cards.ix[name]
            if nodes.is_ready[ix]:
                found.setdefault(nodes.pool[ix], []).append(ix)
        return found

    def candidates(
        self, pool: str, constraints: Constraints, frame: NodeSet = WHOLE_POOL
    ) -> "array[int]":
        """Ready nodes of the frame that the constraints allow: int32 ix, in order of node names."""
        key = pool, id(constraints), id(frame)
        found = self._found.get(key)
        if found is None:
            allowed = array("i", self._find(pool, constraints, frame))
            found = self._found[key] = constraints, frame, allowed
        return found[2]

    def without_instances(self, found: "array[int]") -> "array[int]":
        """The nodes of `found` without counted resources (MIG instances)."""
        if not self._has_counted:
            return found
        counted = self._nodes.free_counted
        return array("i", [ix for ix in found if not counted[ix]])

    @property
    def has_avoided(self) -> bool:
        """Whether any node has a PreferNoSchedule taint."""
        return bool(self._avoided)

    def unavoided(self, found: "array[int]", constraints: Constraints) -> "array[int]":
        """The nodes of `found` without a PreferNoSchedule taint that these pods do not tolerate."""
        if not self._avoided:
            return found
        mine, taints = constraints.tolerations, self._nodes.taints
        return array(
            "i",
            [ix for ix in found if ix not in self._avoided or tolerates(mine, taints[ix], but=())],
        )

    def why_none(self, pool: str, constraints: Constraints) -> str:
        """Why no ready node of the pool is a candidate, as text."""
        ready = self.ready(pool)
        if not ready:
            return f"no node of pool {pool} is ready"
        causes: dict[str, list[str]] = {}
        for ix in ready:
            cause, has = self._why_not(constraints, ix)
            causes.setdefault(cause, []).append(has)
        listed = ", ".join(
            f"{len(has)} {cause}{_among(has)}" for cause, has in sorted(causes.items()) if cause
        )
        return f"of {len(ready)} ready nodes of pool {pool}, {listed}"

    def _find(self, pool: str, constraints: Constraints, frame: NodeSet) -> list[int]:
        if frame.nodes is None and not self._has_claims and _has_only_tolerations(constraints):
            taints = self._nodes.taints
            mine = constraints.tolerations
            return [ix for ix in self.ready(pool) if not taints[ix] or tolerates(mine, taints[ix])]
        if frame.nodes is None:
            ready = self.ready(pool)
            if constraints.only_nodes:
                named = {self._nodes.ix_of(name) for name in constraints.only_nodes}
                ready = [ix for ix in ready if ix in named]
            return [ix for ix in ready if not self._why_not(constraints, ix)[0]]
        return [ix for ix in self.candidates(pool, constraints) if ix in frame.nodes]

    def _why_not(self, constraints: Constraints, ix: int) -> tuple[str, str]:
        """Why the node is not a candidate, and what it has instead, as text; the first is empty if
        it is one."""
        nodes = self._nodes
        if cause := self._why_not_delivered(constraints, ix):
            return cause, ""
        labels = nodes.labels[ix]
        for key, value in constraints.node_selector:
            if labels.get(key) != value:
                has = f"{key}={labels[key]}" if key in labels else ""
                return f"lack the label {key}={value} of the node selector", has
        for taint in nodes.taints[ix]:
            if not tolerates(constraints.tolerations, (taint,)):
                return "have a taint that is not tolerated", taint.key
        model = nodes.cards.model[ix]
        if not takes_model(constraints.gpu_models, model):
            return "have cards of another model", model
        affinity = constraints.affinity
        if affinity is not None and not selects(affinity, labels, nodes.cards.names[ix]):
            return "do not meet the node affinity", ""
        return self._why_not_beyond_spec(constraints, nodes.cards.names[ix], labels), ""

    def _why_not_delivered(self, constraints: Constraints, ix: int) -> str:
        """Why the node cannot deliver cards as the pod needs them; empty if it can.

        A claim for a share must get exactly what it requests, since the ledger counts the request.
        """
        delivery = constraints.delivery
        if delivery is not None and delivery not in self._nodes.offers[ix]:
            return _OTHER_DELIVERY[delivery]
        mib = constraints.share_mib
        given = {steps.given_mib(mib) for steps in self._nodes.share_steps[ix]}
        if constraints.delivery == "share" and ix in self._kept:
            # kube-scheduler picks the card, and does not know of the nomination.
            return "keep a place for another share until pods leave it"
        if not mib or given <= {mib}:
            return ""
        if 0 in given:
            return f"give no claim as much as {mib} MiB of a card"
        return f"would give {max(given)} MiB to a claim for {mib}, so ask for {max(given)}Mi"

    def _why_not_beyond_spec(
        self, constraints: Constraints, name: str, labels: Mapping[str, str]
    ) -> str:
        """Why volumes, the release, or earlier refusals exclude the node; empty if none does."""
        if not all(selects(each, labels, name) for each in constraints.volumes):
            return "can't reach its volumes"
        if constraints.only_nodes and name not in constraints.only_nodes:
            return "are not among those that it was released for"
        if any(node == name and self._now_s < until for node, until in constraints.barred):
            return "were refused by kube-scheduler and are tried again later"
        return ""


def _among(has: Iterable[str]) -> str:
    """What the nodes have instead, in brackets; empty if it is nothing or much."""
    there = sorted(filter(None, set(has)))
    return f" (they have {', '.join(there)})" if 0 < len(there) <= MOST_VALUES else ""


def _has_only_tolerations(constraints: Constraints) -> bool:
    """Whether tolerations are the only constraints."""
    in_spec = constraints.node_selector or constraints.gpu_models or constraints.affinity
    beyond_spec = constraints.only_nodes or constraints.barred or constraints.volumes
    return not (in_spec or beyond_spec or constraints.delivery in BY_CLAIMS)


def tolerates(
    tolerations: tuple[Toleration, ...], taints: tuple[Taint, ...], but: tuple[str, ...] = (_SOFT,)
) -> bool:
    """Whether the pod tolerates all taints; taints with an effect in `but` are ignored."""
    return all(
        taint.effect in but or any(_covers(t, taint) for t in tolerations) for taint in taints
    )


def selects(selector: NodeSelector, labels: Mapping[str, str], name: str) -> bool:
    """Whether one term of a required node affinity matches the node; an empty term never does."""
    return any(_term_holds(term, labels, name) for term in selector.node_selector_terms)


def _covers(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value


def _term_holds(term: NodeSelectorTerm, labels: Mapping[str, str], name: str) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": name}
    return all(meets(rule, labels) for rule in term.match_expressions or ()) and all(
        meets(rule, fields) for rule in term.match_fields or ()
    )
