"""Which nodes a pod may use by what it says and what the nodes say, whatever is free on them.

The rules are kube-scheduler's for node selectors, required node affinity and taints
(`plugins/nodeaffinity`, `plugins/tainttoleration`), so that a plan is not refused later.
"""

from array import array
from collections.abc import Mapping

from extender.api.objects import NodeSelector, NodeSelectorTerm, Requirement, Taint, Toleration
from extender.state.model import Constraints
from extender.state.nodes import NodeTable

_HARD_EFFECTS = ("NoSchedule", "NoExecute")


class Matcher:
    """Candidate nodes per pool and Constraints object, worked out once each."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._ready: dict[str, list[int]] = {}
        # Constraints objects are kept beside their ids, so that an id can't be used again.
        self._found: dict[tuple[str, int], tuple[Constraints, array[int]]] = {}
        for name in sorted(nodes.cards.ix):
            ix = nodes.cards.ix[name]
            if nodes.is_ready[ix]:
                self._ready.setdefault(nodes.pool[ix], []).append(ix)

    def candidates(self, pool: str, constraints: Constraints) -> "array[int]":
        """Ready nodes of the pool that the constraints allow: int32 ix in order of their names."""
        key = pool, id(constraints)
        found = self._found.get(key)
        if found is None:
            allowed = [ix for ix in self._ready.get(pool, ()) if self._allows(constraints, ix)]
            found = self._found[key] = constraints, array("i", allowed)
        return found[1]

    def _allows(self, constraints: Constraints, ix: int) -> bool:
        nodes = self._nodes
        labels = nodes.labels[ix]
        if any(labels.get(key) != value for key, value in constraints.node_selector):
            return False
        if not tolerates(constraints.tolerations, nodes.taints[ix]):
            return False
        if constraints.gpu_models:
            model = nodes.cards.model[ix].lower()
            if not any(wanted.lower() in model for wanted in constraints.gpu_models):
                return False
        affinity = constraints.affinity
        return affinity is None or selects(affinity, labels, nodes.cards.names[ix])


def tolerates(tolerations: tuple[Toleration, ...], taints: tuple[Taint, ...]) -> bool:
    """Whether no taint keeps the pod off the node; PreferNoSchedule never does."""
    return all(
        taint.effect not in _HARD_EFFECTS or any(_covers(t, taint) for t in tolerations)
        for taint in taints
    )


def selects(selector: NodeSelector, labels: Mapping[str, str], name: str) -> bool:
    """Whether one term of a required node affinity holds; an empty term never does."""
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
    return all(_holds(rule, labels) for rule in term.match_expressions or ()) and all(
        _holds(rule, fields) for rule in term.match_fields or ()
    )


def _holds(rule: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(rule.key)
    values = rule.values or []
    match rule.operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(rule.operator, value, values)
    return False


def _compares(operator: str, value: str | None, values: list[str]) -> bool:
    """Gt and Lt hold between two integers only."""
    try:
        have, bound = int(value or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return have > bound if operator == "Gt" else have < bound
