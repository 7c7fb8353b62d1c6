"""Which running pods anti-affinity keeps apart from a pending one."""

from collections.abc import Sequence

from extender.policy.placement.pod_affinity import PodAffinity, TermKey
from extender.state.model import PodView


class Rivals:
    """Finds the candidates that may not run in a domain together with a pending pod.

    Costs one pass over the candidates, and afterwards only what is found.
    """

    def __init__(self, affinity: PodAffinity, candidates: Sequence[PodView]) -> None:
        self._affinity = affinity
        # By term, the candidates p that have it, and the candidates p that it selects.
        self._owners: dict[TermKey, list[int]] = {}
        self._selected: dict[TermKey, list[int]] = {}
        for p, pod in enumerate(candidates if affinity else ()):
            for key in affinity.anti_terms(pod):
                self._owners.setdefault(key, []).append(p)
            for key in affinity.terms_selecting(pod):
                self._selected.setdefault(key, []).append(p)

    def find(self, pod: PodView) -> dict[int, set[str]]:
        """By candidate p, the topology keys in whose domains the two may not run together."""
        found: dict[int, set[str]] = {}
        own = ((key, self._selected) for key in self._affinity.anti_terms(pod))
        others = ((key, self._owners) for key in self._affinity.terms_selecting(pod))
        for key, pods in (*own, *others):
            for p in pods.get(key, ()):
                found.setdefault(p, set()).add(key[1].topology_key)
        return found
