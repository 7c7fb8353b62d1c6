"""Giving a workload its next chunk: a place, within limits and quotas, or the reason why not."""

from collections.abc import Callable, Iterable, Sequence

from extender.api.reasons import Refused
from extender.policy.placement.placer import Moment
from extender.policy.queues.tree import Queue, sum_amounts
from extender.policy.session import Session
from extender.policy.workloads.pending import Pending
from extender.state.model import Amounts, PodView

#: Why the workload's queue may not take so much more by its policy, or None when it may.
Bound = Callable[[Queue, Pending, Amounts], Refused | None]


def grant(
    session: Session,
    pending: Pending,
    pool: str,
    moment: Moment,
    *,
    bound: Bound | None = None,
    chunks: Iterable[Sequence[PodView]] | None = None,
) -> Pending | Refused | None:
    """Admit the next chunk in the pool, reserved or (`later`) nominated; or why it has to wait.

    Returns what still waits of the workload afterwards. `bound` may refuse before anything is held;
    `chunks` are tried instead of those that come next.
    """
    leaf = session.queue_of(pending.workload, pool)

    def check(amounts: Amounts) -> Refused | None:
        why = bound(leaf, pending, amounts) if bound else None
        return why or session.check_room(leaf, pending.workload, amounts, moment)

    refused: Refused | None = None
    for chunk in pending.chunks() if chunks is None else chunks:
        why = check(pending.need_of(chunk))
        if why is None:
            mark = session.sim.checkpoint()
            placed = session.places.place_chunk(pending, pool, moment, chunk)
            if placed is not None:
                # So much memory is more of a small card than of the largest.
                why = check(sum_amounts(placement.amounts for placement in placed))
                if why is None:
                    state = "reserved" if moment == "now" else "nominated"
                    return session.admit(pending, placed, pool, state)  # type: ignore[arg-type]
                session.sim.rollback(mark)
        refused = refused or why or session.shortages.explain(pending, pool)
    assert refused is not None
    return refused


def has_place_in(
    session: Session,
    pending: Pending,
    chunk: Sequence[PodView],
    pools: Iterable[str],
    moment: Moment,
) -> bool:
    """Whether any of the pools has places for the chunk, and its queue there room; holds none."""
    need = pending.need_of(chunk)
    for pool in pools:
        leaf = session.queues[pool].leaf_of(pending.workload)
        if leaf is None or session.check_room(leaf, pending.workload, need, moment) is not None:
            continue
        mark = session.sim.checkpoint()
        placed = session.places.place_chunk(pending, pool, moment, chunk)
        session.sim.rollback(mark)
        if placed is not None:
            return True
    return False
