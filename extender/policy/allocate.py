"""Stage `allocate`: free places go to whoever's turn it is, quota and limits permitting.

Nobody is evicted. What only fits once pods that already leave have left is nominated, so that no
more victims are taken for it.
"""

from extender.api.reasons import Refused
from extender.policy.chunks import Pending
from extender.policy.order import Turns
from extender.policy.place import Moment
from extender.policy.queues import Queue, sum_amounts
from extender.policy.session import Session


def allocate(session: Session) -> None:
    """Place what fits, pool after pool; `session.pending` is left with what does not."""
    waiting: dict[str, list[Pending]] = {}
    for pending in session.pending:
        waiting.setdefault(pending.pools[0], []).append(pending)
    order = session.pools_in_order()
    blocked: list[Pending] = []
    while waiting:
        pool = min(waiting, key=order.index)
        for pending in _allocate_in(session, pool, waiting.pop(pool)):
            following = _pool_after(pending, pool)
            if following is None:
                blocked.append(pending)
            else:
                waiting.setdefault(following, []).append(pending)
    session.pending = blocked


def _allocate_in(session: Session, pool: str, waiting: list[Pending]) -> list[Pending]:
    """Serve one pool until nothing more fits; returns what it has no place for."""
    turns = Turns((session.queue_of(p.workload, pool), p) for p in waiting)
    blocked = []
    while (turn := turns.pop()) is not None:
        leaf, pending = turn
        placed = _try_chunk(session, leaf, pending, pool)
        if isinstance(placed, Refused):
            # The first pool's reason is the one that its owner expects to read.
            session.waits.setdefault(pending.workload.key, placed)
            blocked.append(pending)
            turns.settle()
        else:
            turns.settle(placed)
            if placed is None:
                session.waits.pop(pending.workload.key, None)
    return blocked


def _try_chunk(
    session: Session, leaf: Queue, pending: Pending, pool: str
) -> Pending | Refused | None:
    """Admit the next chunk now, or else on places that are being left; or why it has to wait.

    Returns what still waits of the workload afterwards.
    """
    refused: Refused | None = None
    moments: tuple[Moment, ...] = ("now", "later") if pool in session.leaving_pools else ("now",)
    for moment in moments:
        least = pending.need()
        why = session.check_room(leaf, pending.workload, least, moment)
        if why is None:
            mark = session.sim.checkpoint()
            placed = session.places.place_chunk(pending.chunk, pool, moment)
            if placed is None:
                why = session.shortages.explain(pending, pool)
            else:
                amounts = sum_amounts(placement.amounts for placement in placed)
                if amounts != least:
                    why = session.check_room(leaf, pending.workload, amounts, moment)
                if why is None:
                    state = "reserved" if moment == "now" else "nominated"
                    return session.admit(pending, placed, pool, state)  # type: ignore[arg-type]
                session.sim.rollback(mark)
        refused = refused or why
    assert refused is not None
    return refused


def _pool_after(pending: Pending, pool: str) -> str | None:
    """The pool that the workload may try when `pool` has no place for it."""
    if pool not in pending.pools:
        return None
    at = pending.pools.index(pool) + 1
    return pending.pools[at] if at < len(pending.pools) else None
