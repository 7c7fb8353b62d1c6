"""Required pod affinity and anti-affinity, kept current while the simulation adds and evicts pods.

A term selects the pods of its owner's namespace that have all its labels. Its topology key divides
the nodes into domains. An affinity term requires a selected pod, a peer, in the owner's domain. If
there is no peer anywhere, a pod that its own term selects may start as the bootstrap pod. An
anti-affinity term keeps its owner and the selected pods in different domains. The rules are
kube-scheduler's (`plugins/interpodaffinity`). Pods without a row count as well, but their own terms
are left to it. Nothing is counted if no pod of the snapshot has a term, or for anti-affinity terms
that select no pod.
"""

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field

from extender.policy.placement.simulation import Moment
from extender.policy.queues.tree import tally_of
from extender.state.model import Labels, PodTerm, PodView
from extender.state.snapshot import Snapshot


@dataclass(slots=True, eq=False)
class CountedTerm:
    """A term with its pod counts by domain, now and later.

    `present` counts the pods that the term selects, `repelling` the pods that have it as an
    anti-affinity term. `placed_this_cycle` has the pods with this affinity term that are placed in
    this cycle: by uid, with the node ix. `bootstrap` is the uid of the bootstrap pod among them.
    """

    namespace: str
    term: PodTerm
    present: dict[Moment, Counter[str]] = field(
        default_factory=lambda: {"now": Counter(), "later": Counter()}
    )
    repelling: dict[Moment, Counter[str]] = field(
        default_factory=lambda: {"now": Counter(), "later": Counter()}
    )
    placed_this_cycle: dict[str, tuple[PodView, int]] = field(default_factory=dict)
    bootstrap: str = ""

    def selects(self, pod: PodView) -> bool:
        """Whether the term selects this pod."""
        return pod.namespace == self.namespace and self.term.matches(pod.labels)

    def keep_placed(self, uids: Collection[str]) -> None:
        """Keep only the pods with these uids in `placed_this_cycle`."""
        placed = self.placed_this_cycle
        self.placed_this_cycle = {uid: placed[uid] for uid in placed if uid in uids}


class PodAffinity:
    """Counts pods for all terms of the snapshot; a Simulation reports every step to it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._nodes = snapshot.nodes
        self._known: dict[tuple[str, PodTerm], CountedTerm] = {}
        # By namespace and the first label that the term requires, None for a term without labels.
        self._by_label: dict[tuple[str, tuple[str, str] | None], list[CountedTerm]] = {}
        # By namespace and labels, so that many pods with the same labels cost one pass.
        self._selecting_cache: dict[tuple[str, Labels], list[CountedTerm]] = {}
        # A pod with no peer anywhere at this moment may be the bootstrap pod.
        self._bootstrap_moment: Moment = "now"
        self._read(snapshot)

    def __bool__(self) -> bool:
        return bool(self._known)

    def without_terms(self) -> "PodAffinity":
        """The same as if no pod had a term."""
        found = copy(self)
        found._known = {}
        return found

    def concerns(self, pods: Iterable[PodView]) -> bool:
        """Whether any of the pods has a term, or is selected by one."""
        if not self._known:
            return False
        return any(
            pod.constraints.pod_affinity or self.terms_selecting(pod) or any(self.anti_terms(pod))
            for pod in pods
        )

    def together(self, pods: Sequence[PodView]) -> str:
        """The topology key of a term that puts one pod beside another of them; else empty."""
        peers: dict[tuple[str, PodTerm], list[PodView]] = {}
        for pod in pods if self._known else ():
            for term in pod.constraints.pod_affinity:
                key = pod.namespace, term
                if key not in peers:
                    peers[key] = list(filter(self._known[key].selects, pods))
                if len(peers[key]) > 1 or (peers[key] and peers[key][0] is not pod):
                    return term.topology_key
        return ""

    def allowed(self, pod: PodView, candidates: "array[int]", moment: Moment) -> "array[int]":
        """The candidates on which the terms of the pod and of all pods there are met."""
        if not self._known or not self.concerns((pod,)):
            return candidates
        required = self._bootstrap_domains(pod)
        return array(
            "i",
            [
                ix
                for ix in candidates
                if self._meets_terms(pod, ix, moment)
                and all(self._nodes.labels[ix].get(key) == domain for key, domain in required)
            ],
        )

    @contextmanager
    def after_evictions(self) -> Iterator[None]:
        """Inside the context, pods evicted in this cycle no longer prevent a bootstrap pod."""
        self._bootstrap_moment = "later"
        try:
            yield
        finally:
            self._bootstrap_moment = "now"

    def is_peer(self, pod: PodView, other: PodView) -> bool:
        """Whether the pod must run beside the other one, or beside another that is like it."""
        return any(
            self._known[pod.namespace, term].selects(other) for term in pod.constraints.pod_affinity
        )

    def anti_terms(self, pod: PodView) -> Iterator[CountedTerm]:
        """The anti-affinity terms of the pod that select any pod."""
        for term in pod.constraints.pod_anti_affinity:
            if counted := self._known.get((pod.namespace, term)):
                yield counted

    def terms_selecting(self, pod: PodView) -> Sequence[CountedTerm]:
        """The terms, of all pods, that select the pod."""
        return self._selecting(pod.namespace, pod.labels)

    def start(self, pods: Iterable[PodView]) -> None:
        """The pods start in this cycle. A bootstrap pod among them needs no nominated peer."""
        for pod in pods:
            for term in pod.constraints.pod_affinity:
                counted = self._known[pod.namespace, term]
                if counted.selects(pod) and not _has_more(counted.present["now"], 1):
                    counted.bootstrap = pod.uid

    def change(self, ix: int, pod: PodView, now: int, later: int) -> None:
        """As `simulation.Neighbours.change`."""
        labels = self._nodes.labels[ix]
        for counted in self.terms_selecting(pod):
            _count(counted.present, labels, counted.term, (now, later))
        for counted in self.anti_terms(pod):
            _count(counted.repelling, labels, counted.term, (now, later))
        for term in pod.constraints.pod_affinity if now else ():
            placed = self._known[pod.namespace, term].placed_this_cycle
            if now > 0:
                placed[pod.uid] = pod, ix
            else:
                placed.pop(pod.uid, None)

    def can_stay(self, pod: PodView, ix: int, moment: Moment) -> bool:
        """Whether the terms allow the pod, already counted on node `ix`, to stay there."""
        return not self._known or self._meets_terms(pod, ix, moment, is_there=True)

    def is_apart(self, pod: PodView, ix: int) -> bool:
        """Whether the placed pod and the pods there later meet the anti-affinity of one another."""
        return not self._known or self._is_apart(pod, self._nodes.labels[ix], ("later", 1))

    def unsatisfied(self) -> set[str]:
        """Uids of the pods that are placed in this cycle and lack a peer there later."""
        if not self._known:
            return set()
        return {
            uid
            for counted in self._known.values()
            for uid, (pod, ix) in counted.placed_this_cycle.items()
            if uid != counted.bootstrap
            and not self._has_peer(pod, counted.term, self._nodes.labels[ix], ("later", 1))
        }

    def leaves_unsatisfied(self, before: Collection[str]) -> bool:
        """Whether any pod is unsatisfied now that is not in `before`."""
        return any(uid not in before for uid in self.unsatisfied())

    def _meets_terms(
        self, pod: PodView, ix: int, moment: Moment, *, is_there: bool = False
    ) -> bool:
        """Whether the pod's terms and those of the pods in the node's domains are met. `is_there`:
        the counts include the pod itself."""
        labels, itself = self._nodes.labels[ix], int(is_there)
        return self._is_apart(pod, labels, (moment, itself)) and all(
            self._has_peer(pod, term, labels, (moment, itself))
            for term in pod.constraints.pod_affinity
        )

    def _is_apart(self, pod: PodView, labels: Mapping[str, str], when: tuple[Moment, int]) -> bool:
        """Whether the anti-affinity terms of the pod and of the pods in its domains are met."""
        (moment, itself), constraints = when, pod.constraints
        for counted in self.anti_terms(pod):
            domain = labels.get(counted.term.topology_key)
            if domain and counted.present[moment][domain] > itself * counted.selects(pod):
                return False
        for counted in self.terms_selecting(pod):
            domain = labels.get(counted.term.topology_key)
            own = itself * (counted.term in constraints.pod_anti_affinity)
            if domain and counted.repelling[moment][domain] > own:
                return False
        return True

    def _has_peer(
        self, pod: PodView, term: PodTerm, labels: Mapping[str, str], when: tuple[Moment, int]
    ) -> bool:
        domain = labels.get(term.topology_key)
        if not domain:
            return False
        moment, itself = when
        counted = self._known[pod.namespace, term]
        own = itself * counted.selects(pod)
        if counted.present[moment][domain] > own:
            # A pod evicted in this cycle cannot be the peer of a pod placed in it.
            return itself == 1 or counted.present["later"][domain] > 0
        # The bootstrap pod needs no peer. Evicted pods still count now, so no pod becomes the
        # bootstrap pod because its peers are evicted.
        return counted.selects(pod) and not _has_more(counted.present[self._bootstrap_moment], own)

    def _selecting(self, namespace: str, labels: Labels) -> Sequence[CountedTerm]:
        """The terms that select a pod of the namespace with these labels."""
        key = namespace, labels
        found = self._selecting_cache.get(key)
        if found is None:
            found = self._selecting_cache[key] = [
                counted
                for label in (None, *labels)
                for counted in self._by_label.get((namespace, label), ())
                if counted.term.matches(labels)
            ]
        return found

    def _bootstrap_domains(self, pod: PodView) -> set[tuple[str, str]]:
        """Domains (label, value) of bootstrap pods placed in this cycle, which have no peer unless
        this pod joins them."""
        found = set[tuple[str, str]]()
        for counted in self.terms_selecting(pod):
            if len(counted.placed_this_cycle) != 1 or _has_more(counted.present["later"], 1):
                continue
            first, ix = next(iter(counted.placed_this_cycle.values()))
            if counted.selects(first):
                key = counted.term.topology_key
                found.add((key, self._nodes.labels[ix].get(key, "")))
        return found

    def _read(self, snapshot: Snapshot) -> None:
        """Costs one pass over the workloads with terms and, if there are any, two over all pods."""
        self._read_terms(snapshot)
        for workload in snapshot.workloads.values() if self._known else ():
            for pod in workload.pods:
                later = 0 if pod.is_terminating else 1
                for node, is_there_later in ((pod.node, later), (pod.next_node, 1)):
                    ix = snapshot.nodes.ix_of(node) if node else None
                    if ix is not None:
                        self.change(ix, pod, 1, is_there_later)
        for each in snapshot.bystanders if self._known else ():
            for counted in self._selecting(each.namespace, each.labels):
                n_pods = each.n_pods, each.n_pods
                _count(counted.present, each.node_labels, counted.term, n_pods)
        for counted in self._known.values():
            counted.keep_placed(snapshot.placed)

    def _read_terms(self, snapshot: Snapshot) -> None:
        """Find the affinity terms, and the anti-affinity terms that select any pod."""
        needed = set[CountedTerm]()
        for key in tally_of(snapshot).picky:
            for pod in snapshot.workloads[key].pods:
                for term in (*pod.constraints.pod_affinity, *pod.constraints.pod_anti_affinity):
                    self._known.setdefault((pod.namespace, term), CountedTerm(pod.namespace, term))
                needed.update(
                    self._known[pod.namespace, term] for term in pod.constraints.pod_affinity
                )
        for counted in self._known.values():
            first = next(iter(counted.term.labels), None)
            self._by_label.setdefault((counted.namespace, first), []).append(counted)
        for workload in snapshot.workloads.values() if self._known else ():
            for pod in workload.pods:
                needed.update(self.terms_selecting(pod))
        for each in snapshot.bystanders if self._known else ():
            needed.update(self._selecting(each.namespace, each.labels))
        self._known = {key: each for key, each in self._known.items() if each in needed}


def _has_more(counts: Counter[str], than: int) -> bool:
    """Whether the counts add up to more than `than`; stops as soon as they do."""
    for n in counts.values():
        than -= max(0, n)
        if than < 0:
            return True
    return False


def _count(
    counts: Mapping[Moment, Counter[str]],
    labels: Mapping[str, str],
    term: PodTerm,
    by: tuple[int, int],
) -> None:
    domain = labels.get(term.topology_key)
    if domain:
        counts["now"][domain] += by[0]
        counts["later"][domain] += by[1]
