"""Stage `stale-gangs`: evicts the rest of a gang that was below its minimum for too long.

Such pods hold idle cards. A gang that gets its minimum back in the same cycle keeps its pods.
Non-preemptible gangs are evicted as well.
"""

from extender.api.reasons import Reason
from extender.policy.plan import Eviction
from extender.policy.queues.tree import held_pool, tally_of
from extender.policy.session import Session
from extender.policy.workloads.gangs import is_satisfied, live_pods
from extender.state.model import PodView, WorkloadView
from extender.state.tally import held_amounts


def evict_stale_gangs(session: Session) -> None:
    """Put the evictions of stale gangs into the plan."""
    snapshot = session.snapshot
    for key in sorted(tally_of(snapshot).stale):
        workload = snapshot.workloads[key]
        if workload.stale_since is None or workload.stale_grace_s is None:
            continue
        stale_s = snapshot.now_s - workload.stale_since
        live = live_pods(workload)
        if not live or stale_s < workload.stale_grace_s or session.draft.has_victims(key):
            continue
        if not session.budgets.allow_stop(live):
            session.hold_back(live, [workload] * len(live))
            continue
        placed = [placement.pod for placement in session.draft.placed_of(key)]
        if not is_satisfied(workload, {pod.uid: pod for pod in (*live, *placed)}.values()):
            _evict(session, workload, live, stale_s)


def _evict(session: Session, workload: WorkloadView, live: list[PodView], stale_s: int) -> None:
    note = f"below its minimum for {stale_s} s, {workload.stale_grace_s} s are allowed"
    session.budgets.take(live)
    for pod in live:
        session.draft.evict(Eviction(pod, workload.key, Reason.GANG_STALE, "", note))
        ix = session.sim.later.cards.ix.get(pod.node)
        pool = held_pool(session.snapshot, pod)
        leaf = session.queues[pool].leaf_of(workload) if pool in session.queues else None
        if ix is not None:
            session.sim.evict(ix, pod, pod.cards)
        if leaf is not None:
            amounts = held_amounts(pod, session.queues[pool].smallest_card_mib)
            session.sim.discharge(leaf, amounts, is_np=not workload.is_preemptible)
