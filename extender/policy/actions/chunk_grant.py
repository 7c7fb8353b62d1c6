"""Grants a workload its next chunk: places it within limits and quotas, or says why not."""

from collections.abc import Callable, Iterable, Sequence

from extender.api.reasons import Refused
from extender.policy.placement.node_filter import NodeSet
from extender.policy.placement.simulation import Moment
from extender.policy.plan import Placement, State
from extender.policy.queues.queue import Queue
from extender.policy.queues.room import check_room
from extender.policy.queues.tree import tally_of
from extender.policy.session import Session, placed_amounts
from extender.policy.workloads.gangs import is_satisfied
from extender.policy.workloads.pending import Pending
from extender.state.model import Amounts, PodView, WorkloadView

#: Why the pool's policy refuses the queue these additional amounts, or None if it allows them.
Bound = Callable[[Queue, Pending, Amounts], Refused | None]


def grant(
    session: Session, pending: Pending, pool: str, moment: Moment, bound: Bound | None = None
) -> Pending | Refused | None:
    """As `grant_chunk`, for the first possible next chunk that fits; otherwise returns why the
    first of all was refused."""
    first: Refused | None = None
    for chunk in pending.chunks():
        granted = grant_chunk(session, pending, chunk, (pool, moment), bound)
        if not isinstance(granted, Refused):
            return granted
        first = first or granted
    assert first is not None
    return first


def grant_chunk(
    session: Session,
    pending: Pending,
    chunk: Sequence[PodView],
    where: tuple[str, Moment],
    bound: Bound | None = None,
) -> Pending | Refused | None:
    """Admit the chunk in the pool, as reserved or (`later`) nominated; or why it is refused.

    Returns what is still pending of the workload. `bound` may refuse before anything is held.
    """
    pool, moment = where
    leaf = session.queue_of(pending.workload, pool)

    def check(amounts: Amounts) -> Refused | None:
        why = check_room(leaf, pending.workload, amounts, is_now=moment == "now")
        return why or (bound(leaf, pending, amounts) if bound else None)

    need = pending.need() if chunk is pending.chunk else pending.need_of(chunk)
    if (why := check(need)) is not None:
        return why
    mark = session.sim.checkpoint()
    placed = session.places.place_chunk(pending, pool, moment, chunk)
    if placed is None:
        return session.shortages.explain(pending, pool, chunk)
    amounts = placed_amounts(placed)
    # A request in MiB is a larger fraction of a small card than of the largest card.
    if amounts != need and (why := check(amounts)) is not None:
        session.sim.rollback(mark)
        on_larger = _place_on_larger_cards(session, pending, chunk, where, check)
        if on_larger is None:
            return why
        placed, amounts = on_larger, placed_amounts(on_larger)
    may_start = moment == "now" and _may_start(session, pending.workload, placed)
    state: State = "reserved" if may_start else "nominated"
    return session.admit(pending, placed, pool, state, amounts)


def _may_start(session: Session, workload: WorkloadView, placed: Sequence[Placement]) -> bool:
    """Whether the placed pods may start at once. Surplus pods of a gang may not while its minimum
    is still nominated."""
    key, snapshot = workload.key, session.snapshot
    if not session.draft.nominated_of(key) and key not in tally_of(snapshot).nominated:
        return True
    runs = [
        pod
        for pod in workload.pods
        if pod.node and pod.state != "nominated" and not pod.is_terminating
    ]
    starts = [each.pod for each in (*session.draft.reserved_of(key), *placed)]
    return is_satisfied(workload, [*runs, *starts])


def _place_on_larger_cards(
    session: Session,
    pending: Pending,
    chunk: Sequence[PodView],
    where: tuple[str, Moment],
    check: Callable[[Amounts], Refused | None],
) -> list[Placement] | None:
    """Place a chunk that requests memory on larger cards, where it is a smaller fraction of a GPU,
    as far as `check` allows. Tries smaller cards first; None if nothing is allowed."""
    (pool, moment), places, sim = where, session.places, session.sim
    card_mib, ready = sim.later.cards.card_mib, places.node_filter.ready(pool)
    for least in sorted({card_mib[ix] for ix in ready})[1:]:
        large = NodeSet(f"{least} MiB", frozenset(ix for ix in ready if card_mib[ix] >= least))
        mark = sim.checkpoint()
        placed = places.place_chunk(pending, pool, moment, chunk, large)
        if placed is None or check(placed_amounts(placed)) is None:
            return placed
        sim.rollback(mark)
    return None


def has_place_in(
    session: Session,
    pending: Pending,
    chunk: Sequence[PodView],
    pools: Iterable[str],
    moment: Moment,
) -> bool:
    """Whether any of the pools has room for the chunk on nodes and in its queue; holds nothing."""
    need = pending.need_of(chunk)
    return any(
        (leaf := session.queues[pool].leaf_of(pending.workload)) is not None
        and check_room(leaf, pending.workload, need, is_now=moment == "now") is None
        and session.places.has_place(pending, pool, moment, chunk)
        for pool in pools
    )
