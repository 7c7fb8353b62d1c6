"""The workloads that victims leave for: whether they still wait, and whether they ran."""

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

#: A beneficiary that does not run so long after the last pod was evicted for it: the evictions were
#: useless. Longer than victims may take to end (300 s by default), and less than a person waits.
RUNS_WITHIN_S: Final = 600.0

log = structlog.get_logger(__name__)

#: UID of a pod, and the node on which a place is nominated for it.
Seat = tuple[str, str]


@dataclass(slots=True, eq=False)
class EvictionGroup:
    """The evictions of one plan for one beneficiary (None: the pods leave for no other workload).

    `seats` are the places that the plan nominated for it, `victims` the workloads that give pods,
    by key, as they were planned: a pod may be gone before the API server has answered. `dropped`
    says why the evictions that have not started are given up; `told` are those that were accepted,
    `forced` the UIDs of pods that budgets bind no more.
    """

    beneficiary: WorkloadView | None
    seats: tuple[Seat, ...]
    evictions: Sequence[Eviction]
    n_open: int
    victims: Mapping[str, WorkloadView]
    dropped: str = ""
    told: list[Eviction] = field(default_factory=list)
    forced: set[str] = field(default_factory=set)
    asked: "asyncio.Future[None] | None" = None

    @property
    def key(self) -> str:
        """The beneficiary's key, or that of the workload that is taken down."""
        return self.beneficiary.key if self.beneficiary else self.evictions[0].workload

    def drop(self, why: str) -> None:
        """Start no more evictions; the first reason counts."""
        self.dropped = self.dropped or why


def case_of(plan: Plan, snapshot: Snapshot, evictions: Sequence[Eviction]) -> EvictionGroup:
    """The case of these evictions, which all have the same beneficiary."""
    key = evictions[0].beneficiary
    seats = tuple(
        (placement.pod.uid, placement.node)
        for admission in plan.admissions
        if admission.state == "nominated" and admission.workload.key == key
        for placement in admission.placements
    )
    victims = {each.workload: snapshot.workloads[each.workload] for each in evictions}
    return EvictionGroup(snapshot.workloads.get(key), seats, evictions, len(evictions), victims)


@dataclass(slots=True)
class _Awaited:
    """Evictions for beneficiaries that have yet to run.

    `uids` are its pods that were not seen bound, `released` those that kube-scheduler may bind.
    `victims` are how many pods of which project left for this `project`.
    """

    key: str
    uids: set[str]
    released: set[str]
    n_evicted: int
    until: float
    project: str
    victims: Mapping[str, int]

    def settle(self, *, has_run: bool) -> None:
        """Count the evictions as those of use, or of none."""
        for victim, n_pods in self.victims.items():
            ran = "yes" if has_run else "no"
            metrics.SETTLED_EVICTIONS.labels(victim, self.project, ran).inc(n_pods)


class Beneficiaries:
    """Asks the model about beneficiaries, and counts the evictions that were of no use."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._awaited: list[_Awaited] = []

    def why_not(self, case: EvictionGroup) -> str:
        """Why nothing more is to be evicted for the case's beneficiary; empty while it waits.

        It waits while each of its pods still holds the place that the plan nominated for it, and
        at least one of the places is not yet free.
        """
        if case.beneficiary is None:
            return ""
        states: set[str] = set()
        for uid, node in case.seats:
            pod = self._state.pod(uid)
            if pod is None:
                return "its beneficiary is gone"
            if pod.is_terminating:
                return "its beneficiary is terminating"
            if pod.node != node or pod.state in ("gated", "foreign"):
                return "its beneficiary has lost the place that was nominated"
            states.add(pod.state)
        if not case.seats:
            states = set(self._states_of(pod.uid for pod in case.beneficiary.pods))
            return "" if states & {"gated", "nominated"} else "its beneficiary waits no more"
        return "" if "nominated" in states else "its beneficiary waits no more"

    def watch(self, case: EvictionGroup, now: float) -> None:
        """Pods were evicted for the case: note whether its beneficiary runs."""
        uids = {uid for uid, _ in case.seats}
        if uids and case.beneficiary is not None:
            victims = Counter(case.victims[each.workload].project for each in case.told)
            self._awaited.append(
                _Awaited(
                    case.key, uids, set(), len(case.told), now + RUNS_WITHIN_S,
                    case.beneficiary.project, victims,
                )
            )  # fmt: skip

    def review(self, now: float) -> None:
        """Count the evictions that turned out to be useless; costs what is awaited."""
        self._awaited = [each for each in self._awaited if not self._is_settled(each, now)]

    def _is_settled(self, awaited: _Awaited, now: float) -> bool:
        for uid in list(awaited.uids):
            pod = self._state.pod(uid)
            is_late = now > awaited.until
            if pod is not None and pod.state == "reserved" and not is_late:
                awaited.released.add(uid)
            elif (pod is None and uid in awaited.released) or (pod and pod.state == "bound"):
                # A short pod may have run and ended between two looks.
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
