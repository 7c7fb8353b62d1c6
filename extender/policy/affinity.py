"""Who may be near whom: required pod affinity and anti-affinity, while pods come and go.

A term speaks of pods of its owner's namespace that have all its labels, and of a domain: the nodes
that agree on one label. Affinity wants such a pod in the domain; where there is none at all, a pod
that meets its own term may be the first. Anti-affinity wants none there, and keeps the pods it
speaks of away from its owner's domain too. The rules are kube-scheduler's
(`plugins/interpodaffinity`). Nothing is counted where no pod of the snapshot has a term.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from extender.policy.queues import tally_of
from extender.state.model import PodTerm, PodView, Snapshot

_Moment = Literal["now", "later"]


@dataclass(slots=True, eq=False)
class _Census:
    """Pods by domain, now and later: those a term speaks of, and those that keep it as a rule."""

    namespace: str
    term: PodTerm
    present: dict[_Moment, Counter[str]] = field(
        default_factory=lambda: {"now": Counter(), "later": Counter()}
    )
    keepers: dict[_Moment, Counter[str]] = field(
        default_factory=lambda: {"now": Counter(), "later": Counter()}
    )

    def speaks_of(self, pod: PodView) -> bool:
        """Whether the term means this pod."""
        return pod.namespace == self.namespace and set(self.term.labels) <= set(pod.labels)


class Beside:
    """Keeps count of all terms of the snapshot; a Simulation tells it of every step."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._nodes = snapshot.nodes
        self._known: dict[tuple[str, PodTerm], _Census] = {}
        # By what matters of a pod, so that a thousand alike are looked at once.
        self._meant: dict[tuple[str, tuple[tuple[str, str], ...]], list[_Census]] = {}
        self._read(snapshot)

    def __bool__(self) -> bool:
        return bool(self._known)

    def concerns(self, pods: Iterable[PodView]) -> bool:
        """Whether it matters for any of the pods who is where."""
        if not self._known:
            return False
        return any(_has_terms(pod) or self._census_of(pod) for pod in pods)

    def allowed(self, pod: PodView, candidates: "array[int]", moment: _Moment) -> "array[int]":
        """Those of `candidates` whose domains suit the pod and everybody there."""
        if not self._known or not self.concerns((pod,)):
            return candidates
        return array("i", [ix for ix in candidates if self._suits(pod, ix, moment)])

    def change(self, ix: int, pod: PodView, now: int, later: int) -> None:
        """As `simulation.Neighbours.change`."""
        labels = self._nodes.labels[ix]
        for census in self._census_of(pod):
            _count(census.present, labels, census.term, (now, later))
        for term in pod.constraints.pod_anti_affinity:
            census = self._known[pod.namespace, term]
            _count(census.keepers, labels, term, (now, later))

    def stands(self, pod: PodView, ix: int, moment: _Moment) -> bool:
        """The same for a pod that is counted on node `ix` already: whether it may stay there."""
        return not self._known or self._suits(pod, ix, moment, is_there=True)

    def _suits(self, pod: PodView, ix: int, moment: _Moment, *, is_there: bool = False) -> bool:
        """Whether the pod and everybody in the node's domains suit one another. `is_there`: the pod
        itself is among those that are counted."""
        labels, constraints = self._nodes.labels[ix], pod.constraints
        itself = int(is_there)
        for term in constraints.pod_anti_affinity:
            domain = labels.get(term.topology_key)
            census = self._known[pod.namespace, term]
            if domain and census.present[moment][domain] > itself * census.speaks_of(pod):
                return False
        for census in self._census_of(pod):
            domain = labels.get(census.term.topology_key)
            own = itself * (census.term in constraints.pod_anti_affinity)
            if domain and census.keepers[moment][domain] > own:
                return False
        return all(
            self._has_company(pod, term, labels, (moment, itself))
            for term in constraints.pod_affinity
        )

    def _has_company(
        self, pod: PodView, term: PodTerm, labels: Mapping[str, str], when: tuple[_Moment, int]
    ) -> bool:
        domain = labels.get(term.topology_key)
        if not domain:
            return False
        moment, itself = when
        census = self._known[pod.namespace, term]
        own = itself * census.speaks_of(pod)
        present = census.present[moment]
        return present[domain] > own or (
            census.speaks_of(pod) and sum(n for n in present.values() if n > 0) <= own
        )

    def _census_of(self, pod: PodView) -> Sequence[_Census]:
        """The terms, of whomever, that speak of the pod."""
        key = pod.namespace, pod.labels
        found = self._meant.get(key)
        if found is None:
            found = [census for census in self._known.values() if census.speaks_of(pod)]
            self._meant[key] = found
        return found

    def _read(self, snapshot: Snapshot) -> None:
        """Costs the workloads that have terms; where there are any, all that run."""
        for key in tally_of(snapshot).picky:
            for pod in snapshot.workloads[key].pods:
                for term in (*pod.constraints.pod_affinity, *pod.constraints.pod_anti_affinity):
                    self._known.setdefault((pod.namespace, term), _Census(pod.namespace, term))
        if not self._known:
            return
        for workload in snapshot.workloads.values():
            for pod in workload.pods:
                later = 0 if pod.is_terminating else 1
                for node, is_there_later in ((pod.node, later), (pod.next_node, 1)):
                    ix = snapshot.nodes.ix_of(node) if node else None
                    if ix is not None:
                        self.change(ix, pod, 1, is_there_later)


def _has_terms(pod: PodView) -> bool:
    return bool(pod.constraints.pod_affinity or pod.constraints.pod_anti_affinity)


def _count(
    counts: Mapping[_Moment, Counter[str]],
    labels: Mapping[str, str],
    term: PodTerm,
    by: tuple[int, int],
) -> None:
    domain = labels.get(term.topology_key)
    if domain:
        counts["now"][domain] += by[0]
        counts["later"][domain] += by[1]
