"""Work that a node pool could never hold takes no part in a pool that shares fairly.

A pod larger than every node, or with a typo in its selector, has no turn: no place is kept for it,
and no work waits for it. It is told why it has no place. In strict order it still holds up its own
queue, where it may use some node. Pools of other policies have rules of their own.
"""

from extender.policy.session import Session
from extender.policy.workloads.pending import Pending
from extender.policy.workloads.pod_classes import shapes_of


def set_aside_unplaceable(session: Session) -> None:
    """Take out of each workload's pools those whose ready nodes could hold nothing of it."""
    for pending in session.pending:
        usable = tuple(pool for pool in pending.pools if _could_hold(session, pending, pool))
        if usable == pending.pools:
            continue
        if usable[:1] != pending.pools[:1]:
            # The first pool's reason is the one that its owner expects to read.
            why = session.shortages.explain(pending, pending.pools[0], pending.chunk)
            session.waits.setdefault(pending.workload.key, why)
        pending.only_holds_up = not usable
        pending.pools = usable or tuple(
            pool for pool in pending.pools if session.holds_up_queue(pending, pool)
        )


def _could_hold(session: Session, pending: Pending, pool: str) -> bool:
    bound = session.capacity_bound
    if session.snapshot.pools[pool].policy != "fairshare" or bound.allows(pending.shapes, pool):
        return True
    return any(bound.allows(shapes_of(chunk), pool) for chunk in pending.other_chunks())
