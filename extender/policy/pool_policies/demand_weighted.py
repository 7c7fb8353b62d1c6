"""Node pools of policy `demand-weighted`: shares of GPUs in proportion to demand times weight.

The claim of a queue is what it runs and what waits and could ever be placed, up to its limit.
Non-preemptible work has its GPUs first. The rest is divided in proportion to claim times weight,
nobody above its claim; what is over is divided again, whole GPUs by largest remainder, ties to the
older queue. A share smaller than the smallest task of its queue is of no use: the newest such queue
is put aside, and the division repeated. What a department gets is divided below it in the same way.

A queue starts only what its share holds, even if GPUs stay idle, and stops its oldest preemptible
work down to its share, even if nobody waits. Work without GPUs is not shared: it starts where it
fits. The rules are those of Determined's documentation and of its fair-share scheduler
(`master/internal/rm/agentrm/fair_share.go`), which weighs by weight alone.

Work that may use several pools asks for its GPUs in each. Once it has them in one it asks for none
elsewhere, so nobody gives back anything before all such pools have started what they can; and it
goes on above a share as long as nobody else is given its place.
"""

from collections.abc import Iterable, Iterator, Sequence

from extender.api.reasons import Reason, Refused
from extender.api.units import format_gpus, format_tenths
from extender.policy.actions.chunk_grant import grant
from extender.policy.placement.placer import Moment
from extender.policy.pool_policies.demand_shares import divide_by_claims
from extender.policy.pool_policies.eviction_units import Unit, may_stay, stoppable, units_in
from extender.policy.preemption.statement import is_over
from extender.policy.queues.fairshare import children_first, demands, set_dues, sum_requests
from extender.policy.queues.tree import RESOURCES, PoolQueues, Queue, frozen
from extender.policy.session import Session
from extender.policy.workloads.pending import Pending, why_behind
from extender.state.model import CPU, GPU, MEMORY, Amounts, WorkloadView


def set_demand_shares(session: Session, queues: PoolQueues) -> None:
    """Set the shares of every queue of the pool; CPU and memory are not shared here."""
    everyone = children_first(queues.roots)
    sum_requests(everyone)
    for resource in (CPU, MEMORY):
        wants = demands(everyone, resource, is_leaving_counted=False)
        for queue in everyone:
            queue.share[resource] = wants[queue]
    divide_again(session, queues)


def divide_again(session: Session, queues: PoolQueues) -> None:
    """Divide the pool's GPUs by what is held, and what waits, now."""
    everyone = children_first(queues.roots)
    divide_by_claims(session, queues)
    for queue in everyone:
        queue.share_to_take = queue.share_to_keep = frozen(queue.share)
    set_dues(queues, everyone)


def start_by_demand(session: Session, pool: str, waiting: Iterable[Pending]) -> list[Pending]:
    """Start what can start at once in the pool; returns what is left."""
    return _start(session, pool, waiting, "now")


def share_by_demand(session: Session, pool: str, waiting: Iterable[Pending]) -> list[Pending]:
    """Decide who has to give in the pool, and who gets it; returns what has no place."""
    waiting = list(waiting)
    if "reclaim" in session.settings.stages and session.snapshot.pools[pool].has_preemption:
        leaving = list(_shrink(session, pool))
        session.places.forget_failures(pool)
        # Who gives does not take in the same cycle.
        giving = {unit.leaf for unit in leaving}
        takers = [p for p in waiting if session.queue_of(p.workload, pool) not in giving]
        others = [p for p in waiting if session.queue_of(p.workload, pool) in giving]
        before = [(pending, set(pending.nodes)) for pending in takers]
        left = _start(session, pool, takers, "later") + others
        _let_stay(session, leaving)
        _plan_evictions(session, leaving, before)
        return left
    if pool in session.leaving_pools:
        return _start(session, pool, waiting, "later")
    return waiting


def _start(
    session: Session, pool: str, waiting: Iterable[Pending], moment: Moment
) -> list[Pending]:
    """Start what the shares hold and what fits, in turns; returns what is left."""
    turns = session.take_turns(pool, waiting)
    left = []
    while (turn := turns.pop()) is not None:
        pending = turn[1]
        key = pending.workload.key
        given = grant(session, pending, pool, moment, bound=_bound)
        if isinstance(given, Refused):
            session.waits.setdefault(key, given)
            behind = turns.pass_over(holds_up=session.holds_up_queue(pending, pool))
            for passed in behind:
                session.waits.setdefault(passed.workload.key, why_behind(passed, key))
            left += [pending, *behind]
        else:
            turns.settle(given)
            if given is None:
                session.waits.pop(key, None)
    return left


def _bound(leaf: Queue, pending: Pending, amounts: Amounts) -> Refused | None:
    """Why the shares don't hold so much more, or None when they do."""
    need = amounts[GPU]
    for queue in leaf.chain if need else ():
        has, share = queue.allocated[GPU], queue.share[GPU]
        if has + need > share:
            return Refused(
                Reason.OVER_FAIR_SHARE,
                f"{pending.workload.key}: needs {format_gpus(need)} GPUs, {queue.name} has"
                f" {format_gpus(has)} of its share of {format_gpus(share)}",
            )
    return None


def _shrink(session: Session, pool: str) -> Iterator[Unit]:
    """Let work leave where a queue holds more than its share, the oldest first; no more than it
    takes to get there."""
    over = [
        queue
        for queue in session.queues[pool].by_name.values()
        if not queue.children and queue.allocated[GPU] > queue.share[GPU]
    ]
    if not over:
        return
    beside = session.places.beside
    lonely = beside.lonely()
    workloads = stoppable(session, pool, Reason.RECLAIMED)
    workloads.sort(key=lambda workload: (workload.created_at, workload.key))
    for leaf in over:
        going: list[Unit] = []
        kept = set[str]()
        for unit in _units_of(session, pool, leaf, workloads):
            if leaf.allocated[GPU] <= leaf.share[GPU]:
                break
            if unit.workload.key in kept:
                continue
            unit.leave(session)
            if beside.leaves_alone(lonely):
                # Somebody who is given a place in this cycle needs its company.
                unit.stay(session)
                kept.add(unit.workload.key)
            else:
                going.append(unit)
        for unit in reversed(going[:]):
            fits = leaf.allocated[GPU] + unit.amounts[GPU] <= leaf.share[GPU]
            if fits and may_stay(unit, going):
                unit.stay(session)
                going.remove(unit)
        yield from going


def _let_stay(session: Session, leaving: list[Unit]) -> None:
    """Let those stay who may use other pools as well and whose place nobody was given: once they
    waited they would ask in all of them, and the shares there would go round with them."""
    later = session.sim.later
    for unit in reversed(leaving[:]):
        if len(unit.workload.pools) < 2 or not may_stay(unit, leaving):
            continue
        unit.stay(session)
        is_in_the_way = any(is_over(later, later.cards.ix[pod.node]) for pod in unit.pods)
        is_too_much = any(q.allocated[r] > q.limit[r] for q in unit.leaf.chain for r in RESOURCES)
        if is_in_the_way or is_too_much or not unit.is_apart(session):
            unit.leave(session)
        else:
            leaving.remove(unit)


def _units_of(
    session: Session, pool: str, leaf: Queue, workloads: Iterable[WorkloadView]
) -> Iterator[Unit]:
    """What may leave the queue, in the order of the workloads."""
    for workload in workloads:
        if session.queue_of(workload, pool) is leaf:
            yield from (unit for unit in units_in(session, pool, workload) if unit.amounts[GPU])


def _plan_evictions(
    session: Session, leaving: Iterable[Unit], served: Sequence[tuple[Pending, set[str]]]
) -> None:
    """Put into the plan who leaves, and for whom where somebody has been given a place there.

    `served` are workloads with the pods that had a place before.
    """
    takers: dict[str, str] = {}
    for pending, had in served:
        for uid, node in pending.nodes.items():
            if uid not in had:
                takers.setdefault(node, pending.workload.key)
    for unit in leaving:
        taker = next((takers[pod.node] for pod in unit.pods if pod.node in takers), "")
        held, share = format_tenths(unit.leaf.held[GPU]), format_tenths(unit.leaf.share[GPU])
        note = f"{unit.leaf.name} holds {held} GPUs of its share of {share}"
        unit.evict(session, Reason.RECLAIMED, taker, note)
