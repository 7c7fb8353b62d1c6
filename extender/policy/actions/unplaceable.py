"""Work that a fair-share pool could never hold is not served there.

No cards are reserved for a pod larger than every node, or with a typo in its selector, and no work
waits behind it; its status says why it does not fit. The pods of its workload that can start
without it are served. In strict order the workload still holds up its own queue, if it may use some
node. Pools of other policies have rules of their own.
"""

from collections.abc import Sequence

from extender.policy.session import Session
from extender.policy.workloads.pending import Pending
from extender.state.model import PodView


def set_aside_unplaceable(session: Session) -> None:
    """Remove from each workload the pods that none of its pools could hold, if it can start without
    them, and the pools whose empty nodes could hold none of its possible next chunks."""
    for pending in session.backlog.pending:
        if len(pending.waiting) + len(pending.spare) > 1 and (
            pods := _unplaceable(session, pending)
        ):
            pending.leave_out(pods)
        usable = tuple(pool for pool in pending.pools if _could_hold(session, pending, pool))
        if usable == pending.pools:
            continue
        if not usable:
            # Users expect to read the reason of the first pool. A pool that could never hold the
            # work gives no reason while another could: it may still start.
            why = session.shortages.explain(pending, pending.pools[0], pending.chunk)
            session.draft.waits.setdefault(pending.workload.key, why)
        pending.only_holds_up = not usable
        pending.pools = usable or tuple(
            pool for pool in pending.pools if session.holds_up_queue(pending, pool)
        )


def _unplaceable(session: Session, pending: Pending) -> Sequence[PodView]:
    """The waiting and spare pods that fit no node of the workload's pools, even an empty one; none
    if all waiting pods fit."""
    bound = session.capacity_bound
    if all(bound.allows_each(pending.waiting, pool) for pool in pending.pools):
        return ()
    return [
        pod
        for pod in (*pending.waiting, *pending.spare)
        if not any(bound.allows_each((pod,), pool) for pool in pending.pools)
    ]


def _could_hold(session: Session, pending: Pending, pool: str) -> bool:
    is_fair = session.snapshot.pools[pool].policy == "fairshare"
    return not is_fair or session.capacity_bound.allows(pending, pool)
