"""What may be stopped in node pools of the policies `demand-weighted` and `priority`.

Which work goes, and when, is theirs to say; here is what goes together, and how it leaves and comes
back in the simulation. Fair share has rules of its own for its victims.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Final

from extender.api.reasons import Reason
from extender.policy.plan import Eviction
from extender.policy.queues.tree import Queue, held_amounts, held_pool, sum_amounts
from extender.policy.session import Session
from extender.policy.workloads.gangs import is_satisfied, least_pods, live_pods, unit_of
from extender.state.model import Amounts, PodView, WorkloadView

#: Choices of who stays of a workload that would go whole.
_MOST_PARTS: Final = 32
_FEW_PODS: Final = 8


@dataclass(slots=True, eq=False)
class Unit:
    """Pods of one workload that leave together."""

    workload: WorkloadView
    leaf: Queue
    pods: Sequence[PodView]
    amounts: Amounts

    def leave(self, session: Session) -> None:
        """They are told to go: their places are free later."""
        sim = session.sim
        for pod in self.pods:
            sim.evict(sim.later.cards.ix[pod.node], pod, pod.cards)
        sim.discharge(self.leaf, self.amounts, is_np=False)

    def stay(self, session: Session) -> None:
        """Undo `leave`."""
        sim = session.sim
        for pod in self.pods:
            sim.reinstate(sim.later.cards.ix[pod.node], pod, pod.cards)
        sim.charge(self.leaf, self.amounts, is_np=False)

    def is_apart(self, session: Session) -> bool:
        """Whether they, who stay, and those who are there later do not keep away from one
        another."""
        beside, ix_of = session.places.beside, session.sim.later.cards.ix
        return all(beside.is_apart(pod, ix_of[pod.node]) for pod in self.pods)

    def evict(self, session: Session, reason: Reason, beneficiary: str, note: str) -> None:
        """Put it into the plan."""
        session.budgets.take(self.pods)
        for pod in self.pods:
            session.evict(Eviction(pod, self.workload.key, reason, beneficiary, note))


def stoppable(session: Session, pool: str, reason: Reason) -> list[WorkloadView]:
    """Workloads that run in the pool and may be stopped for `reason`; one pass over all work.

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
        if snapshot.now_s - started >= _min_runtime_s(leaf, reason):
            found.append(workload)
    # Reclaim takes what is above its share, whoever waits.
    is_awaited = reason is Reason.RECLAIMED or any(pool in p.pools for p in session.pending)
    return _within_budgets(session, found, is_awaited=is_awaited)


def _within_budgets(
    session: Session, workloads: list[WorkloadView], *, is_awaited: bool
) -> list[WorkloadView]:
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
        elif is_awaited:
            session.hold_back(live, [workload] * len(live))
    budgets.take(taken, -1)
    return found


def units_in(session: Session, pool: str, workload: WorkloadView) -> Iterator[Unit]:
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
        pods = _next_unit(workload, list(live.values()), here)
        uids = {pod.uid for pod in pods}
        if not uids <= {pod.uid for pod in here}:
            return
        leaving = [pod for pod in here if pod.uid in uids]
        amounts = sum_amounts(held_amounts(pod, mib) for pod in leaving)
        yield Unit(workload, leaf, leaving, amounts)
        here = [pod for pod in here if pod.uid not in uids]
        for uid in uids:
            del live[uid]


def _next_unit(
    workload: WorkloadView, live: Collection[PodView], here: Iterable[PodView]
) -> Collection[PodView]:
    """The smallest unit around any of the pods `here`; around the first of those where it is one of
    several. Pods of one group are alike in this."""
    by_group: dict[str, PodView] = {}
    for pod in here:
        by_group.setdefault(pod.group, pod)
    return min((unit_of(workload, live, pod) for pod in by_group.values()), key=len)


def parts_of(
    session: Session, pool: str, units: Sequence[Unit], gone: Collection[str]
) -> Iterator[tuple[Unit, list[Unit]]]:
    """The units are all that is left of a workload but for the pods of uids `gone`: what of it
    could stay by itself, with the rest pod by pod. The smallest come first. Of a large workload
    none are looked for."""
    workload, leaf = units[0].workload, units[0].leaf
    mib = session.queues[pool].smallest_card_mib
    pods = [pod for unit in units for pod in unit.pods]
    n_left = sum(pod.uid not in gone for pod in live_pods(workload))
    if len(pods) < n_left or len(pods) > _FEW_PODS:
        return

    def unit_of_these(chosen: Iterable[PodView]) -> Unit:
        listed = list(chosen)
        return Unit(workload, leaf, listed, sum_amounts(held_amounts(pod, mib) for pod in listed))

    least = max(1, least_pods(workload))
    some = (stay for n in range(least, len(pods)) for stay in combinations(pods, n))
    for stay in islice(some, _MOST_PARTS):
        if is_satisfied(workload, stay):
            uids = {pod.uid for pod in stay}
            rest = [unit_of_these([pod]) for pod in pods if pod.uid not in uids]
            yield unit_of_these(stay), rest


def may_stay(unit: Unit, going: Iterable[Unit], gone: Collection[str] = ()) -> bool:
    """Whether the unit's workload may go on with it, if the other units leave, as the pods of uids
    `gone` did before: with enough for its minimums, or with all that it had."""
    leaving = {
        pod.uid
        for other in going
        if other.workload is unit.workload and other is not unit
        for pod in other.pods
    }
    live = live_pods(unit.workload)
    staying = [pod for pod in live if pod.uid not in leaving and pod.uid not in gone]
    return len(staying) == len(live) or is_satisfied(unit.workload, staying)


def _min_runtime_s(leaf: Queue, reason: Reason) -> int:
    if reason is Reason.PREEMPTED:
        return max(queue.preempt_min_runtime_s for queue in leaf.chain)
    return max(queue.reclaim_min_runtime_s for queue in leaf.chain)
