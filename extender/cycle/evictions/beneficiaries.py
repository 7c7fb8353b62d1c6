"""The workloads that pods are evicted for: are they still pending, and did they run?"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from extender.cycle import metrics
from extender.policy.plan import Eviction, Plan
from extender.state.cluster import ClusterState
from extender.state.model import WorkloadView
from extender.state.snapshot import Snapshot

#: If a beneficiary does not run this long after its last victim was evicted, the evictions were
#: useless. Longer than victims may take to end (300 s by default), shorter than a person waits.
RUNS_WITHIN_S: Final = 600.0

log = structlog.get_logger(__name__)

#: UID of a pod, and the node with its nominated row.
Nomination = tuple[str, str]


@dataclass(slots=True, eq=False)
class EvictionGroup:
    """The evictions of one plan for one beneficiary (`beneficiary` None: for no other workload).

    `nominations` are the plan's for it. `victims` are the workloads that lose pods, by key, as they
    were planned: a pod may be gone before the API server answers. `dropped` is why evictions that
    have not started are given up; `accepted` are those that the API server accepted; `forced` are
    UIDs of pods that budgets no longer protect.
    """

    beneficiary: WorkloadView | None
    nominations: tuple[Nomination, ...]
    evictions: Sequence[Eviction]
    n_open: int
    victims: Mapping[str, WorkloadView]
    dropped: str = ""
    accepted: list[Eviction] = field(default_factory=list)
    forced: set[str] = field(default_factory=set)
    dry_run: "asyncio.Future[None] | None" = None

    @property
    def key(self) -> str:
        """The beneficiary's key; without one, the key of the workload that is evicted."""
        return self.beneficiary.key if self.beneficiary else self.evictions[0].workload

    def drop(self, why: str) -> None:
        """Start no further eviction; the first reason is kept."""
        self.dropped = self.dropped or why


def eviction_group(plan: Plan, snapshot: Snapshot, evictions: Sequence[Eviction]) -> EvictionGroup:
    """The group of these evictions, which all have the same beneficiary."""
    key = evictions[0].beneficiary
    nominations = tuple(
        (placement.pod.uid, placement.node)
        for admission in plan.admissions
        if admission.state == "nominated" and admission.workload.key == key
        for placement in admission.placements
    )
    victims = {each.workload: snapshot.workloads[each.workload] for each in evictions}
    return EvictionGroup(
        snapshot.workloads.get(key), nominations, evictions, len(evictions), victims
    )


@dataclass(slots=True)
class _Awaited:
    """Evictions for a beneficiary that is not yet seen running.

    `uids` are its pods not yet seen bound, `released` those that kube-scheduler may bind.
    `victims` counts the evicted pods by their project; `project` is the beneficiary's.
    """

    key: str
    uids: set[str]
    released: set[str]
    n_evicted: int
    until: float
    project: str
    victims: Mapping[str, int]

    def settle(self, *, has_run: bool) -> None:
        """Count the evictions as useful or as useless."""
        for victim, n_pods in self.victims.items():
            ran = "yes" if has_run else "no"
            metrics.SETTLED_EVICTIONS.labels(victim, self.project, ran).inc(n_pods)


class Beneficiaries:
    """Checks beneficiaries against the model, and counts useless evictions."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._awaited: list[_Awaited] = []

    def why_drop(self, group: EvictionGroup) -> str:
        """Why nothing more should be evicted for the beneficiary; empty while it is pending.

        It is pending while each of its pods still has the row that the plan nominated, and at least
        one of these rows is still nominated.
        """
        if group.beneficiary is None:
            return ""
        states: set[str] = set()
        for uid, node in group.nominations:
            pod = self._state.pod(uid)
            if pod is None:
                return "its beneficiary is gone"
            if pod.is_terminating:
                return "its beneficiary is terminating"
            if pod.node != node or pod.state in ("gated", "foreign"):
                return "its beneficiary has lost its nomination"
            states.add(pod.state)
        if not group.nominations:
            states = set(self._states_of(pod.uid for pod in group.beneficiary.pods))
            return "" if states & {"gated", "nominated"} else "its beneficiary is no longer pending"
        return "" if "nominated" in states else "its beneficiary is no longer pending"

    def watch(self, group: EvictionGroup, now: float) -> None:
        """Pods were evicted for the group: watch whether its beneficiary runs."""
        uids = {uid for uid, _ in group.nominations}
        if uids and group.beneficiary is not None:
            victims = Counter(group.victims[each.workload].project for each in group.accepted)
            self._awaited.append(
                _Awaited(
                    group.key, uids, set(), len(group.accepted), now + RUNS_WITHIN_S,
                    group.beneficiary.project, victims,
                )
            )  # fmt: skip

    def review(self, now: float) -> None:
        """Count the evictions by whether their beneficiary ran. Costs one look at each."""
        self._awaited = [each for each in self._awaited if not self._is_settled(each, now)]

    def _is_settled(self, awaited: _Awaited, now: float) -> bool:
        for uid in list(awaited.uids):
            pod = self._state.pod(uid)
            is_late = now > awaited.until
            if pod is not None and pod.state == "reserved" and not is_late:
                awaited.released.add(uid)
            elif (pod is None and uid in awaited.released) or (pod and pod.state == "bound"):
                # A short pod may have run and ended since the last review.
                awaited.uids.discard(uid)
            elif pod is None or pod.is_terminating or is_late:
                metrics.USELESS_EVICTIONS.inc(awaited.n_evicted)
                awaited.settle(has_run=False)
                log.warning(
                    "evicted for a workload that did not run",
                    workload=awaited.key,
                    victims=awaited.n_evicted,
                )
                return True
        if not awaited.uids:
            awaited.settle(has_run=True)
        return not awaited.uids

    def _states_of(self, uids: Iterable[str]) -> Iterable[str]:
        pods = (self._state.pod(uid) for uid in uids)
        return [pod.state for pod in pods if pod is not None and not pod.is_terminating]
