"""What may be evicted in node pools of policy `demand-weighted`, in which units, and how a unit
leaves and comes back in the simulation.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from extender.api.reasons import Reason
from extender.policy.plan import Eviction
from extender.policy.queues.tree import Queue, held_amounts, held_pool, sum_amounts
from extender.policy.session import Session
from extender.policy.workloads.gangs import is_satisfied, live_pods, unit_of
from extender.state.model import Amounts, PodView, WorkloadView


@dataclass(slots=True, eq=False)
class ShrinkUnit:
    """Pods of one workload that leave together."""

    workload: WorkloadView
    leaf: Queue
    pods: Sequence[PodView]
    amounts: Amounts

    def evict(self, session: Session) -> None:
        """Evict the pods in the simulation: their places are free later."""
        sim = session.sim
        for pod in self.pods:
            sim.evict(sim.later.cards.ix[pod.node], pod, pod.cards)
        sim.discharge(self.leaf, self.amounts, is_np=False)

    def keep(self, session: Session) -> None:
        """Undo `evict`."""
        sim = session.sim
        for pod in self.pods:
            sim.reinstate(sim.later.cards.ix[pod.node], pod, pod.cards)
        sim.charge(self.leaf, self.amounts, is_np=False)

    def is_apart(self, session: Session) -> bool:
        """Whether pod anti-affinity allows the pods to stay beside those that are there later."""
        beside, ix_of = session.places.pod_affinity, session.sim.later.cards.ix
        return all(beside.is_apart(pod, ix_of[pod.node]) for pod in self.pods)

    def plan_eviction(self, session: Session, reason: Reason, beneficiary: str, note: str) -> None:
        """Put it into the plan."""
        session.budgets.take(self.pods)
        for pod in self.pods:
            session.evict(Eviction(pod, self.workload.key, reason, beneficiary, note))


def evictable(session: Session, pool: str) -> list[WorkloadView]:
    """Workloads that run in the pool and may be evicted; one pass over all work.

    They are preemptible, run whole for their minimum time, are given nothing in this cycle, and
    disruption budgets let them go.
    """
    snapshot = session.snapshot
    found = []
    for key in sorted(snapshot.workloads):
        workload = snapshot.workloads[key]
        if not workload.is_preemptible or session.is_served(key) or session.is_giving(key):
            continue
        live = live_pods(workload)
        if not any(held_pool(snapshot, pod) == pool for pod in live):
            continue
        leaf = session.queues[pool].leaf_of(workload)
        if leaf is None or any(pod.state != "bound" for pod in live):
            continue
        started = min(pod.started_at or snapshot.now_s for pod in live)
        if snapshot.now_s - started >= max(q.reclaim_min_runtime_s for q in leaf.chain):
            found.append(workload)
    return _within_budgets(session, found)


def _within_budgets(session: Session, workloads: list[WorkloadView]) -> list[WorkloadView]:
    """Those that disruption budgets let go whole, all together, the worst priority first."""
    budgets = session.budgets
    if not budgets.are_any:
        return workloads
    found, taken = [], list[PodView]()
    for workload in sorted(workloads, key=lambda w: (w.priority, -w.created_at, w.key)):
        live = live_pods(workload)
        if budgets.allow_stop(live):
            budgets.take(live)
            taken += live
            found.append(workload)
        else:
            session.hold_back(live, [workload] * len(live))
    budgets.take(taken, -1)
    return found


def units_in(session: Session, pool: str, workload: WorkloadView) -> Iterator[ShrinkUnit]:
    """The units in which the workload may leave the pool, one after the other.

    Surplus goes first, in it what has run least; what cannot shrink goes whole, and then it must
    be whole in this pool.
    """
    leaf = session.queue_of(workload, pool)
    mib = session.queues[pool].smallest_card_mib
    live = {pod.uid: pod for pod in live_pods(workload)}
    here = [pod for pod in live.values() if held_pool(session.snapshot, pod) == pool]
    here.sort(key=lambda pod: (-pod.started_at, pod.key))
    while here:
        pods = next_unit(workload, list(live.values()), here)
        uids = {pod.uid for pod in pods}
        if not uids <= {pod.uid for pod in here}:
            return
        leaving = [pod for pod in here if pod.uid in uids]
        amounts = sum_amounts(held_amounts(pod, mib) for pod in leaving)
        yield ShrinkUnit(workload, leaf, leaving, amounts)
        here = [pod for pod in here if pod.uid not in uids]
        for uid in uids:
            del live[uid]


def next_unit(
    workload: WorkloadView, live: Collection[PodView], here: Iterable[PodView]
) -> Collection[PodView]:
    """The smallest unit around any of the pods `here`; around the first of those where it is one of
    several. Pods of one group are alike in this."""
    by_group: dict[str, PodView] = {}
    for pod in here:
        by_group.setdefault(pod.group, pod)
    return min((unit_of(workload, live, pod) for pod in by_group.values()), key=len)


def may_stay(unit: ShrinkUnit, going: Iterable[ShrinkUnit]) -> bool:
    """Whether the unit's workload may go on with it if the other units leave: with enough for its
    minimums, or with all that it had."""
    leaving = {
        pod.uid
        for other in going
        if other.workload is unit.workload and other is not unit
        for pod in other.pods
    }
    live = live_pods(unit.workload)
    staying = [pod for pod in live if pod.uid not in leaving]
    return len(staying) == len(live) or is_satisfied(unit.workload, staying)
