"""Node pools of policy `demand-weighted`: shares of GPUs in proportion to demand times weight.

Departments, projects, the users of a project and at last single workloads get shares, level by
level. The demand of a workload is what it runs, and what waits and could ever be placed; that of a
queue is the sum, up to its limit. Every queue gets at least its non-preemptible work and its
smallest task (a pod, or a gang), and never more than its demand; between these bounds shares are in
proportion to demand times weight, in whole GPUs by largest remainder, ties to the older queue. If
not all can have their smallest task, the smaller one goes first, of equal ones that of the older
queue; inside a project that of the workload that has run longest, then by priority and age. What a
queue cannot use of its share goes to the others.

A workload starts only what its share holds, even if GPUs stay idle, and pods above its share are
evicted, even if nothing waits. Non-preemptible work needs no quota; where a quota is stated it is
bounded by it, and has its GPUs first. Work without GPUs is not shared: the oldest goes first, and
what does not fit holds up nothing.

The rules are those of Determined's documentation, with the one task for every experiment of its
fair-share scheduler (`master/internal/rm/agentrm/fair_share.go`), which weighs by weight alone.

Work that may use several pools asks for its GPUs in each. Once it has them in one it asks for none
elsewhere, so no workload gives back anything before all such pools have started what they can; and
it goes on above a share as long as no other work is given its place.
"""

from collections.abc import Iterable, Iterator, Sequence

from extender.api.reasons import Reason, Refused
from extender.api.units import format_gpus, format_tenths
from extender.policy.actions.chunk_grant import grant
from extender.policy.placement.placer import Moment
from extender.policy.pool_policies.demand_shares import divide_by_demand
from extender.policy.pool_policies.eviction_units import ShrinkUnit, evictable, may_stay, units_in
from extender.policy.preemption.statement import is_over
from extender.policy.queues.fairshare import children_first, demands, set_dues, sum_requests
from extender.policy.queues.tree import RESOURCES, PoolQueues, Queue, frozen
from extender.policy.session import Session
from extender.policy.workloads.pending import Pending
from extender.state.model import CPU, GPU, MEMORY, Amounts


def set_demand_shares(session: Session, queues: PoolQueues) -> None:
    """Set the shares of every queue of the pool; CPU and memory are not shared here."""
    every_queue = children_first(queues.roots)
    sum_requests(every_queue)
    for resource in (CPU, MEMORY):
        wants = demands(every_queue, resource, is_leaving_counted=False)
        for queue in every_queue:
            queue.share[resource] = wants[queue]
    divide_again(session, queues)


def divide_again(session: Session, queues: PoolQueues) -> None:
    """Divide the pool's GPUs by what is held, and what waits, now."""
    every_queue = children_first(queues.roots)
    divide_by_demand(session, queues)
    for queue in every_queue:
        queue.share_to_take = queue.share_to_keep = queue.exact_share = frozen(queue.share)
    set_dues(queues, every_queue)


def start_by_demand(session: Session, pool: str, waiting: Iterable[Pending]) -> list[Pending]:
    """Start what can start at once in the pool; returns what is left."""
    return _start(session, pool, waiting, "now")


def share_by_demand(session: Session, pool: str, waiting: Iterable[Pending]) -> list[Pending]:
    """Evict what is above the shares, and give the places to what is below; returns what has no
    place."""
    waiting = list(waiting)
    if "reclaim" in session.settings.stages and session.snapshot.pools[pool].has_preemption:
        leaving = list(_shrink(session, pool))
        session.places.forget_failures(pool)
        # A workload that gives pods back starts none in the same cycle.
        giving = {unit.leaf for unit in leaving}
        below = [p for p in waiting if session.queue_of(p.workload, pool) not in giving]
        others = [p for p in waiting if session.queue_of(p.workload, pool) in giving]
        before = [(pending, set(pending.nodes)) for pending in below]
        left = _start(session, pool, below, "later") + others
        _keep_idle_places(session, leaving)
        _plan_evictions(session, leaving, before)
        return left
    if pool in session.leaving_pools:
        return _start(session, pool, waiting, "later")
    return waiting


def _start(
    session: Session, pool: str, waiting: Iterable[Pending], moment: Moment
) -> list[Pending]:
    """Start what the shares hold and what fits, in turns; returns what is left."""
    with_gpus: list[Pending] = []
    without: list[Pending] = []
    for pending in waiting:
        (with_gpus if pending.need()[GPU] else without).append(pending)
    turns = session.take_turns(pool, with_gpus)
    left = []
    while (turn := turns.pop()) is not None:
        given = _try(session, turn[1], pool, moment)
        if isinstance(given, Refused):
            left.append(turn[1])
            turns.pass_over(holds_up=False)
        else:
            turns.settle(given)
    for pending in sorted(without, key=lambda each: (each.workload.created_at, each.workload.key)):
        rest: Pending | None = pending
        while rest is not None:
            given = _try(session, rest, pool, moment)
            if isinstance(given, Refused):
                left.append(rest)
                break
            rest = given
    return left


def _try(session: Session, pending: Pending, pool: str, moment: Moment) -> Pending | Refused | None:
    """Start the next chunk of the workload; as `grant`."""
    given = grant(session, pending, pool, moment, bound=_bound)
    if isinstance(given, Refused):
        session.waits.setdefault(pending.workload.key, given)
    elif given is None:
        session.waits.pop(pending.workload.key, None)
    return given


def _bound(leaf: Queue, pending: Pending, amounts: Amounts) -> Refused | None:
    """Why the shares don't hold so much more, or None when they do."""
    need = amounts[GPU]
    for queue in leaf.chain if need else ():
        has, share = queue.allocated[GPU], queue.share[GPU]
        if has + need > share:
            return Refused(
                Reason.OVER_FAIR_SHARE,
                f"{pending.workload.key}: needs {format_gpus(need)} GPUs,"
                f" {'it' if queue is leaf else queue.name} has {format_gpus(has)} of its share of"
                f" {format_gpus(share)}",
            )
    return None


def _shrink(session: Session, pool: str) -> Iterator[ShrinkUnit]:
    """Evict what workloads hold above their shares, in the simulation: no more than it takes."""
    beside, queues = session.places.pod_affinity, session.queues[pool]
    if not any(q.allocated[GPU] > q.share[GPU] for q in queues.by_workload.values()):
        return
    lonely = beside.unsatisfied()
    for workload in evictable(session, pool):
        leaf = queues.by_workload[workload.key]
        going: list[ShrinkUnit] = []
        for unit in units_in(session, pool, workload):
            if leaf.allocated[GPU] <= leaf.share[GPU]:
                break
            if not unit.amounts[GPU]:
                continue
            unit.evict(session)
            if beside.leaves_unsatisfied(lonely):
                # A pod that is given a place in this cycle needs these pods beside it.
                unit.keep(session)
                break
            going.append(unit)
        for unit in reversed(going[:]):
            fits = leaf.allocated[GPU] + unit.amounts[GPU] <= leaf.share[GPU]
            if fits and may_stay(unit, going):
                unit.keep(session)
                going.remove(unit)
        yield from going


def _keep_idle_places(session: Session, leaving: list[ShrinkUnit]) -> None:
    """Keep victims that may use other pools as well if no other work was given their place: once
    evicted they would ask in all of these pools, and change the shares there."""
    later = session.sim.later
    for unit in reversed(leaving[:]):
        if len(unit.workload.pools) < 2 or not may_stay(unit, leaving):
            continue
        unit.keep(session)
        is_in_the_way = any(is_over(later, later.cards.ix[pod.node]) for pod in unit.pods)
        is_too_much = any(q.allocated[r] > q.limit[r] for q in unit.leaf.chain for r in RESOURCES)
        if is_in_the_way or is_too_much or not unit.is_apart(session):
            unit.evict(session)
        else:
            leaving.remove(unit)


def _plan_evictions(
    session: Session, leaving: Iterable[ShrinkUnit], served: Sequence[tuple[Pending, set[str]]]
) -> None:
    """Put the evictions into the plan, each for a workload that was given a place on its node.

    `served` are workloads with the pods that had a place before.
    """
    preemptors: dict[str, str] = {}
    for pending, had in served:
        for uid, node in pending.nodes.items():
            if uid not in had:
                preemptors.setdefault(node, pending.workload.key)
    for unit in leaving:
        found = (preemptors[pod.node] for pod in unit.pods if pod.node in preemptors)
        preemptor = next(found, "")
        held, share = format_tenths(unit.leaf.held[GPU]), format_tenths(unit.leaf.share[GPU])
        note = f"{unit.leaf.name} holds {held} GPUs of its share of {share}"
        unit.plan_eviction(session, Reason.RECLAIMED, preemptor, note)
