"""Which running pods anti-affinity keeps apart from a pending one."""

from collections.abc import Sequence

from extender.policy.placement.pod_affinity import CountedTerm, PodAffinity
from extender.state.model import PodView


class Rivals:
    """Finds the candidates that may not run in a domain together with a pending pod.

    Costs one pass over the candidates, and afterwards only what is found.
    """

    def __init__(self, affinity: PodAffinity, candidates: Sequence[PodView]) -> None:
        self._affinity = affinity
        # By term, the candidates p that have it, and the candidates p that it selects.
        self._owners: dict[CountedTerm, list[int]] = {}
        self._selected: dict[CountedTerm, list[int]] = {}
        for p, pod in enumerate(candidates if affinity else ()):
            for term in affinity.anti_terms(pod):
                self._owners.setdefault(term, []).append(p)
            for term in affinity.terms_selecting(pod):
                self._selected.setdefault(term, []).append(p)

    def find(self, pod: PodView) -> dict[int, set[str]]:
        """By candidate p, the topology keys in whose domains the two may not run together."""
        found: dict[int, set[str]] = {}
        if not self._affinity:
            return found
        own = ((term, self._selected) for term in self._affinity.anti_terms(pod))
        others = ((term, self._owners) for term in self._affinity.terms_selecting(pod))
        for term, pods in (*own, *others):
            for p in pods.get(term, ()):
                found.setdefault(p, set()).add(term.term.topology_key)
        return found
