"""Who may be near whom: required pod affinity and anti-affinity, while pods come and go.

A term speaks of pods of its owner's namespace that have all its labels, and of a domain: the nodes
that agree on one label. Affinity wants such a pod in the domain; where there is none at all, a pod
that meets its own term may be the first. Anti-affinity wants none there, and keeps the pods it
speaks of away from its owner's domain too. The rules are kube-scheduler's
(`plugins/interpodaffinity`). Nothing is counted where no pod of the snapshot has a term.
"""

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from extender.policy.queues.tree import tally_of
from extender.state.model import PodTerm, PodView
from extender.state.snapshot import Snapshot

_Moment = Literal["now", "later"]


@dataclass(slots=True, eq=False)
class _Census:
    """Pods by domain, now and later: those a term speaks of, and those that keep it as a rule.

    `guests` are pods that need company by it and are given places in this cycle: by uid, with the
    node ix. `first` is the uid of one that starts in it as the first of its kind.
    """

    namespace: str
    term: PodTerm
    present: dict[_Moment, Counter[str]] = field(
        default_factory=lambda: {"now": Counter(), "later": Counter()}
    )
    keepers: dict[_Moment, Counter[str]] = field(
        default_factory=lambda: {"now": Counter(), "later": Counter()}
    )
    guests: dict[str, tuple[PodView, int]] = field(default_factory=dict)
    first: str = ""

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
        # When one must be alone to be the first of its kind.
        self._first_at: _Moment = "now"
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
        firsts = self._firsts(pod)
        return array(
            "i",
            [
                ix
                for ix in candidates
                if self._suits(pod, ix, moment)
                and all(self._nodes.labels[ix].get(key) == domain for key, domain in firsts)
            ],
        )

    @contextmanager
    def once_all_have_left(self) -> Iterator[None]:
        """Inside, who leaves in this cycle is there no more: others may be the first then."""
        self._first_at = "later"
        try:
            yield
        finally:
            self._first_at = "now"

    def start(self, pods: Iterable[PodView]) -> None:
        """The pods start in this cycle: the first of its kind is there before those who wait, and
        needs none of them."""
        for pod in pods:
            for term in pod.constraints.pod_affinity:
                census = self._known[pod.namespace, term]
                if census.speaks_of(pod) and not _has_more(census.present["now"], 1):
                    census.first = pod.uid

    def change(self, ix: int, pod: PodView, now: int, later: int) -> None:
        """As `simulation.Neighbours.change`."""
        labels = self._nodes.labels[ix]
        for census in self._census_of(pod):
            _count(census.present, labels, census.term, (now, later))
        for term in pod.constraints.pod_anti_affinity:
            census = self._known[pod.namespace, term]
            _count(census.keepers, labels, term, (now, later))
        for term in pod.constraints.pod_affinity if now else ():
            guests = self._known[pod.namespace, term].guests
            if now > 0:
                guests[pod.uid] = pod, ix
            else:
                guests.pop(pod.uid, None)

    def stands(self, pod: PodView, ix: int, moment: _Moment) -> bool:
        """The same for a pod that is counted on node `ix` already: whether it may stay there."""
        return not self._known or self._suits(pod, ix, moment, is_there=True)

    def is_apart(self, pod: PodView, ix: int) -> bool:
        """Whether the pod, which is counted on node `ix`, may run on there as far as those who are
        there later keep away from one another."""
        return not self._known or self._is_apart(pod, self._nodes.labels[ix], ("later", 1))

    def lonely(self) -> set[str]:
        """Uids of pods that are given places in this cycle and lack company there later."""
        if not self._known:
            return set()
        return {
            uid
            for census in self._known.values()
            for uid, (pod, ix) in census.guests.items()
            if uid != census.first
            and not self._has_company(pod, census.term, self._nodes.labels[ix], ("later", 1))
        }

    def leaves_alone(self, before: Collection[str]) -> bool:
        """Whether anybody is lonely who was not `before`."""
        return any(uid not in before for uid in self.lonely())

    def _suits(self, pod: PodView, ix: int, moment: _Moment, *, is_there: bool = False) -> bool:
        """Whether the pod and everybody in the node's domains suit one another. `is_there`: the pod
        itself is among those that are counted."""
        labels, itself = self._nodes.labels[ix], int(is_there)
        return self._is_apart(pod, labels, (moment, itself)) and all(
            self._has_company(pod, term, labels, (moment, itself))
            for term in pod.constraints.pod_affinity
        )

    def _is_apart(self, pod: PodView, labels: Mapping[str, str], when: tuple[_Moment, int]) -> bool:
        """Whether nobody there is one from whom the pod keeps away, or who keeps away from it."""
        (moment, itself), constraints = when, pod.constraints
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
        return True

    def _has_company(
        self, pod: PodView, term: PodTerm, labels: Mapping[str, str], when: tuple[_Moment, int]
    ) -> bool:
        domain = labels.get(term.topology_key)
        if not domain:
            return False
        moment, itself = when
        census = self._known[pod.namespace, term]
        own = itself * census.speaks_of(pod)
        if census.present[moment][domain] > own:
            # Who leaves in this cycle is no company for one who comes in it.
            return itself == 1 or census.present["later"][domain] > 0
        # The first of its kind needs none. Who leaves is still there now: nobody becomes the first
        # by having the others stopped.
        return census.speaks_of(pod) and not _has_more(census.present[self._first_at], own)

    def _firsts(self, pod: PodView) -> set[tuple[str, str]]:
        """Domains (label, value) of those who are given places as the first of their kind: another
        of the kind that goes elsewhere would leave them without company."""
        found = set[tuple[str, str]]()
        for census in self._census_of(pod):
            if len(census.guests) != 1 or _has_more(census.present["later"], 1):
                continue
            first, ix = next(iter(census.guests.values()))
            if census.speaks_of(first):
                key = census.term.topology_key
                found.add((key, self._nodes.labels[ix].get(key, "")))
        return found

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
        for census in self._known.values():
            census.guests.clear()


def _has_terms(pod: PodView) -> bool:
    return bool(pod.constraints.pod_affinity or pod.constraints.pod_anti_affinity)


def _has_more(counts: Counter[str], than: int) -> bool:
    """Whether there are more than so many in all; looks no further than it must."""
    for n in counts.values():
        than -= max(0, n)
        if than < 0:
            return True
    return False


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
