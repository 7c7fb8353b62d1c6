"""Work that a node pool could never hold takes no part in a pool that shares fairly.

A pod larger than every node, or with a typo in its selector, has no turn: no place is kept for it,
and no work waits for it. It is told why it has no place. What can start without it is as any other
work. In strict order it still holds up its own queue, where it may use some node. Pools of other
policies have rules of their own.
"""

from collections.abc import Sequence

from extender.policy.session import Session
from extender.policy.workloads.pending import Pending
from extender.state.model import PodView


def set_aside_unplaceable(session: Session) -> None:
    """Take out of each workload the pods that none of its pools could hold, as far as it can start
    without them, and of its pools those whose ready nodes could hold nothing of it."""
    for pending in session.pending:
        if len(pending.waiting) + len(pending.spare) > 1 and (pods := _hopeless(session, pending)):
            pending.leave_out(pods)
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


def _hopeless(session: Session, pending: Pending) -> Sequence[PodView]:
    """The waiting pods that fit no node of any of its pools, were it empty; if there are any, the
    spare ones too."""
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
