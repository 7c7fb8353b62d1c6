"""Work that a node pool could never hold takes no part in a pool that shares fairly.

A pod larger than every node, or with a typo in its selector, has no turn: no place is kept for it,
and no work waits for it. It is told why it has no place. In strict order it still holds up its
queue, where it may use some node. Pools of other policies have rules of their own.
"""

from itertools import islice
from typing import Final

from extender.policy.session import Session
from extender.policy.workloads.pending import Pending
from extender.policy.workloads.pod_classes import shapes_of

#: Portions of a workload that are looked at, as many as `allocate` tries.
_MOST_CHUNKS: Final = 8


def set_aside_unplaceable(session: Session) -> None:
    """Leave out of each waiting workload's pools those whose ready nodes could hold none of it."""
    for pending in session.pending:
        usable = tuple(pool for pool in pending.pools if _takes_part(session, pending, pool))
        if usable == pending.pools:
            continue
        if not usable:
            first = pending.pools[0]
            why = session.shortages.explain(pending, first, pending.chunk)
            session.waits.setdefault(pending.workload.key, why)
        pending.pools = usable


def _takes_part(session: Session, pending: Pending, pool: str) -> bool:
    bound = session.capacity_bound
    if session.snapshot.pools[pool].policy != "fairshare":
        return True
    if bound.allows(pending.shapes, pool) or session.holds_up_queue(pending, pool):
        return True
    others = islice(pending.chunks(), 1, _MOST_CHUNKS)
    return any(bound.allows(shapes_of(chunk), pool) for chunk in others)
