"""Disruption budgets: which pods each selects, and how many of them may be disrupted now."""

from collections.abc import Container, Mapping
from typing import Final

from msgspec import Struct

from extender.api.objects import LabelSelector, PodDisruptionBudget
from extender.api.selectors import selects
from extender.state.pods.facts import PodFacts

#: Only the first budgets of a namespace, by name, are counted, to bound what a tenant can cost a
#: cycle. The API server refuses an eviction that violates one of the others.
MOST_PER_NAMESPACE: Final = 100
#: The API server never evicts a pod that two budgets select, so the search stops at the second.
_ENOUGH: Final = 2

_NOTHING: Final[Mapping[str, "_Budget"]] = {}


class _Budget(Struct, frozen=True):
    """The fields of a budget that decisions read."""

    uid: str
    selector: LabelSelector | None
    allowed: int
    binds_unready: bool


class BudgetIndex:
    """Every PodDisruptionBudget by namespace and name."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[str, _Budget]] = {}
        self._counted: dict[str, Mapping[str, _Budget]] = {}

    def set_budget(self, budget: PodDisruptionBudget) -> bool:
        """Store the budget; returns whether it may select other pods than before."""
        meta, status = budget.metadata, budget.status
        # The API server allows no disruption until the budget's controller has seen the new spec.
        is_current = status.observed_generation >= meta.generation
        allowed = max(0, status.disruptions_allowed) if is_current else 0
        kept = _Budget(meta.uid, budget.spec.selector, allowed, _binds_unready(budget))
        known = self._by_namespace.setdefault(meta.namespace, {})
        before = known.get(meta.name)
        known[meta.name] = kept
        self._counted.pop(meta.namespace, None)
        if before is None:
            return True
        return (before.selector, before.binds_unready) != (kept.selector, kept.binds_unready)

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

    def binding(self, pod: PodFacts) -> tuple[str, ...]:
        """`namespace/name` of the budgets that an eviction of the pod has to respect, at most two.

        As in the API server's eviction: no budget applies to a pod that has not begun to run, and a
        budget applies to a pod that is not ready only if the budget says so.
        """
        known = self._of(pod.namespace)
        if not known or not pod.has_begun:
            return ()
        by_key = dict(pod.labels)
        found: list[tuple[str, _Budget]] = []
        for name, budget in known.items():
            if budget.selector is not None and selects(budget.selector, by_key):
                found.append((f"{pod.namespace}/{name}", budget))
                if len(found) == _ENOUGH:
                    break
        if len(found) == 1 and not pod.is_ready and not found[0][1].binds_unready:
            return ()
        return tuple(name for name, _ in found)

    def allowed(self, namespaces: Container[str]) -> dict[str, int]:
        """How many more disruptions each budget of these namespaces allows, by `namespace/name`."""
        return {
            f"{namespace}/{name}": budget.allowed
            for namespace in self._by_namespace
            if namespace in namespaces
            for name, budget in self._of(namespace).items()
        }

    def _of(self, namespace: str) -> Mapping[str, _Budget]:
        """The namespace's budgets up to `MOST_PER_NAMESPACE`, by name."""
        known = self._by_namespace.get(namespace)
        if known is None:
            return _NOTHING
        if namespace not in self._counted:
            self._counted[namespace] = dict(sorted(known.items())[:MOST_PER_NAMESPACE])
        return self._counted[namespace]


def _binds_unready(budget: PodDisruptionBudget) -> bool:
    """Whether the budget also applies to pods that run but are not ready."""
    status = budget.status
    if budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow":
        return False
    return not 0 < status.desired_healthy <= status.current_healthy
