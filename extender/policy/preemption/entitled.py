"""Pending work of a node pool within what its queues deserve."""

from dataclasses import dataclass

from extender.policy.queues.queue import Queue
from extender.policy.session import Session
from extender.state.model import Amounts


@dataclass(slots=True)
class EntitledWork:
    """Asked by stages that would use for others what such work is due."""

    session: Session
    pool: str
    _waiting: "dict[tuple[Queue, Amounts], None] | None" = None

    def is_waiting(self, *, outside: Queue | None = None) -> bool:
        """Whether such work waits, in a project other than `outside` if one is given."""
        session, pool = self.session, self.pool
        if self._waiting is None:
            # Much of what waits is alike: each queue is asked once for each size.
            self._waiting = dict.fromkeys(
                (session.queue_of(pending.workload, pool), pending.need())
                for pending in session.pending
                if pool in pending.pools and not pending.only_holds_up
            )
        return any(
            leaf.project is not outside
            and all(queue.has_room(need, queue.deserves) for queue in leaf.chain)
            for leaf, need in self._waiting
        )
