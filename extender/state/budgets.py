"""Disruption budgets: which pods each selects, and how many of them may be disrupted now."""

from collections.abc import Container, Mapping
from typing import Final

from msgspec import Struct

from extender.api.objects import LabelSelector, PodDisruptionBudget, Requirement
from extender.state.pods import Labels

#: Of one namespace's budgets only so many count, the first by name, so that what a tenant stores
#: costs every cycle little. The API server refuses an eviction that breaks one of the others.
MOST_PER_NAMESPACE: Final = 100
#: The API server evicts no pod that two budgets select, so no more of them are looked for.
_ENOUGH: Final = 2

_NOTHING: Final[Mapping[str, "_Budget"]] = {}


class _Budget(Struct, frozen=True):
    """What is kept of a budget."""

    uid: str
    selector: LabelSelector | None
    allowed: int


class Budgets:
    """Every PodDisruptionBudget by namespace and name."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[str, _Budget]] = {}
        self._counted: dict[str, Mapping[str, _Budget]] = {}

    def set_budget(self, budget: PodDisruptionBudget) -> bool:
        """Take the budget; returns whether it may select other pods than before."""
        meta, status = budget.metadata, budget.status
        # Until its controller has seen the newest spec, the API server allows no disruption.
        is_current = status.observed_generation >= meta.generation
        allowed = max(0, status.disruptions_allowed) if is_current else 0
        kept = _Budget(meta.uid, budget.spec.selector, allowed)
        known = self._by_namespace.setdefault(meta.namespace, {})
        before = known.get(meta.name)
        known[meta.name] = kept
        self._counted.pop(meta.namespace, None)
        return before is None or before.selector != kept.selector

    def drop_budget(self, namespace: str, name: str, uid: str) -> bool:
        """Forget the budget of this UID; returns whether it was there."""
        known = self._by_namespace.get(namespace, {})
        if name not in known or known[name].uid != uid:
            return False
        del known[name]
        self._counted.pop(namespace, None)
        if not known:
            del self._by_namespace[namespace]
        return True

    def selecting(self, namespace: str, labels: Labels) -> tuple[str, ...]:
        """`namespace/name` of the budgets that select a pod with these labels, at most two."""
        known = self._of(namespace)
        if not known:
            return ()
        by_key = dict(labels)
        found: list[str] = []
        for name, budget in known.items():
            if budget.selector is not None and _selects(budget.selector, by_key):
                found.append(f"{namespace}/{name}")
                if len(found) == _ENOUGH:
                    break
        return tuple(found)

    def allowed(self, namespaces: Container[str]) -> dict[str, int]:
        """How many more pods each budget of these namespaces lets go, by `namespace/name`."""
        return {
            f"{namespace}/{name}": budget.allowed
            for namespace in self._by_namespace
            if namespace in namespaces
            for name, budget in self._of(namespace).items()
        }

    def _of(self, namespace: str) -> Mapping[str, _Budget]:
        """The namespace's budgets that count, by name."""
        known = self._by_namespace.get(namespace)
        if known is None:
            return _NOTHING
        if namespace not in self._counted:
            self._counted[namespace] = dict(sorted(known.items())[:MOST_PER_NAMESPACE])
        return self._counted[namespace]


def _selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """As policy/v1: an empty selector selects every pod of the namespace."""
    wanted = selector.match_labels or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(_meets(each, labels) for each in selector.match_expressions or ())


def _meets(expression: Requirement, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression.key), expression.values or []
    match expression.operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    # The API server knows no other; what it may know later selects to be on the safe side.
    return True
