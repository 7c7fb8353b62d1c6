"""The label keys that pod (anti-)affinity of any live pod selects by.

Most clusters have none or a few, so views carry only these labels and stay small.
"""

from collections import Counter
from collections.abc import Iterable, Set

from extender.state.model import Labels
from extender.state.pods.facts import PodFacts


class AskedLabels:
    """How many live pods select by each label key."""

    def __init__(self) -> None:
        self._n: Counter[str] = Counter()

    def exchange(self, before: PodFacts | None, after: PodFacts | None) -> Set[str]:
        """Replace a pod's facts; returns the keys that are selected now or no longer."""
        old = _keys_of(before) if before else frozenset()
        new = _keys_of(after) if after else frozenset()
        if old == new:
            return _NONE
        known = set(self._n)
        self._n.update(new - old)
        for key in old - new:
            self._n[key] -= 1
            if not self._n[key]:
                del self._n[key]
        return known ^ self._n.keys()

    def labels_of(self, facts: PodFacts) -> Labels:
        """The pod's labels that some pod selects by, sorted by key."""
        return tuple(pair for pair in facts.labels if pair[0] in self._n) if self._n else ()

    def validate(self, facts: Iterable[PodFacts]) -> None:
        """Assert that the counts match these pods."""
        assert self._n == Counter(key for each in facts for key in _keys_of(each))


def _keys_of(facts: PodFacts) -> frozenset[str]:
    constraints = facts.constraints
    if not constraints.pod_affinity and not constraints.pod_anti_affinity:
        return _NONE
    terms = (*constraints.pod_affinity, *constraints.pod_anti_affinity)
    return frozenset(key for term in terms for key, _ in term.labels)


_NONE: frozenset[str] = frozenset()
