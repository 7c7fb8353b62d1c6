"""How pod events enter the model: managed pods, foreign pods, other pods, and terminal pods."""

from collections.abc import Collection, Iterable, Iterator

from msgspec import structs

from extender.api.demand import read_demand
from extender.api.events import Removed
from extender.api.objects import Pod
from extender.api.versions import is_older
from extender.state.fleet.fleet import Fleet
from extender.state.pods.facts import (
    PodFacts,
    group_of,
    has_read_claims,
    is_ours,
    read_facts,
    waits_elsewhere,
)
from extender.state.pods.host_hold import read_hold
from extender.state.upkeep.kept_pods import KeptPods
from extender.state.upkeep.upkeep import GoneUids
from extender.state.workloads.assembly import Assembly
from extender.state.workloads.collection import Workloads


class PodIntake:
    """Stores what the API server sends of pods. `assumed` are pods about to be evicted."""

    def __init__(
        self,
        kept: KeptPods,
        workloads: Workloads,
        fleet: Fleet,
        assembly: Assembly,
        gone: GoneUids,
    ) -> None:
        self._kept = kept
        self._workloads = workloads
        self._fleet = fleet
        self._assembly = assembly
        self._gone = gone
        self._claimants: set[str] = set()
        self._bound_claimants: set[str] = set()
        #: UIDs of the pods that use a PersistentVolumeClaim, by its namespace and name.
        self._users_of: dict[tuple[str, str], set[str]] = {}
        self.assumed: set[str] = set()

    def claimants(self) -> Iterator[PodFacts]:
        """Unbound pods that use PersistentVolumeClaims."""
        return (self._workloads.facts[uid] for uid in self._claimants)

    def bound_claimants(self) -> Iterator[PodFacts]:
        """Bound pods with a row that use PersistentVolumeClaims."""
        facts = (self._workloads.facts.get(uid) for uid in self._bound_claimants)
        return (each for each in facts if each is not None)

    def users_of(self, namespace: str, claim: str) -> Collection[str]:
        """UIDs of the live pods that use the claim."""
        return self._users_of.get((namespace, claim), ())

    def assume_terminating(self, uids: Iterable[str]) -> None:
        """Treat these live pods as terminating until the watch says so, or `forget_terminating`."""
        for uid in uids:
            facts = self._workloads.facts.get(uid)
            if facts is not None and not facts.is_terminating:
                self.assumed.add(uid)
                self._take(structs.replace(facts, is_terminating=True))

    def forget_terminating(self, uid: str) -> None:
        """Restore the pod as the API server last sent it."""
        facts = self._workloads.facts.get(uid)
        if uid in self.assumed and facts is not None:
            self.assumed.discard(uid)
            self._take(structs.replace(facts, is_terminating=False))

    def put(self, pod: Pod) -> None:
        """Store the pod as it is now; a version older than the stored one is ignored."""
        meta = pod.metadata
        known = self._kept.facts_of(meta.uid)
        if known is not None and is_older(meta.resource_version, known.resource_version):
            return
        if pod.is_terminal:
            if meta.uid not in self._gone:
                self._end(pod)
            return
        self._gone.discard(meta.uid)
        namesake = self._workloads.uid_of(meta.namespace, meta.name)
        if namesake and namesake != meta.uid:
            self._gone.add(namesake, meta.resource_version)
            self._drop(namesake)
        demand = read_demand(pod)
        # What claims request can change after admission, so pods with claims that requested no
        # card are kept as well.
        is_kept = is_ours(pod, demand) and not waits_elsewhere(pod)
        if is_kept or (pod.spec.node_name and has_read_claims(pod)):
            facts = read_facts(pod, demand)
            if facts.is_terminating:
                self.assumed.discard(meta.uid)
            elif meta.uid in self.assumed:
                facts = structs.replace(facts, is_terminating=True)
            if facts != known:
                self._take(facts)
        else:
            if known is not None:
                self._drop(meta.uid)
            hold = read_hold(pod, demand) if pod.spec.node_name else None
            self._fleet.set_hold(meta.uid, hold)

    def _end(self, pod: Pod) -> None:
        """Drop a terminal pod. If it succeeded, it counts for its group's minimum from now on."""
        self._gone.add(pod.metadata.uid, pod.metadata.resource_version)
        if pod.status.phase == "Succeeded" and group_of(pod):
            demand = read_demand(pod)
            if is_ours(pod, demand) and not (facts := read_facts(pod, demand)).is_mirror:
                self._workloads.note_done(facts)
        self._drop(pod.metadata.uid)

    def remove(self, gone: Removed) -> None:
        """Forget the pod, and whether it succeeded."""
        self._drop(gone.uid)
        self._workloads.forget_done(gone.uid)

    def _drop(self, uid: str) -> None:
        self._forget_claims(uid)
        self._assembly.denials.pop(uid, None)
        self.assumed.discard(uid)
        self._kept.drop(uid)

    def _take(self, facts: PodFacts) -> None:
        self._kept.take(facts)
        if facts.claims:
            self._forget_claims(facts.uid)
            (self._bound_claimants if facts.node else self._claimants).add(facts.uid)
            for claim in facts.claims:
                self._users_of.setdefault((facts.namespace, claim), set()).add(facts.uid)

    def _forget_claims(self, uid: str) -> None:
        """Remove the pod from the claim indices; call it while its facts are known."""
        self._claimants.discard(uid)
        self._bound_claimants.discard(uid)
        facts = self._kept.facts_of(uid)
        if facts is None:
            return
        for claim in facts.claims:
            key = facts.namespace, claim
            users = self._users_of.get(key, set())
            users.discard(uid)
            if not users:
                self._users_of.pop(key, None)
