"""Which minimum run time counts: that of one of the victim's queues, not the longest of several."""

from collections.abc import Iterable, Mapping

from extender.policy.queues.common_ancestor import compared
from extender.policy.queues.queue import Queue


def preempt_minimum_s(leaf: Queue) -> int:
    """Of the leaf, or of the nearest queue above it that states one."""
    return _first(queue.preempt_min_runtime_s for queue in leaf.chain)


def reclaim_minimum_s(leaf: Queue, level_of: Mapping[Queue, int]) -> int:
    """Against a reclaim by the queue with these levels (`levels_of`): of the leaf's queue that is
    compared with the other side's, or of the nearest above it that states one. Where none does, a
    queue below it that states one protects its own work from all others."""
    path, _ = compared(leaf, level_of)
    chain = leaf.chain[max(0, len(path) - 1) :]
    return _first(queue.reclaim_min_runtime_s for queue in (*chain, *reversed(path)))


def own_reclaim_minimum_s(leaf: Queue) -> int:
    """The same where no other queue takes: of the leaf, or of the nearest above it."""
    return _first(queue.reclaim_min_runtime_s for queue in leaf.chain)


def move_minimum_s(leaf: Queue) -> int:
    """The longer of both minimums, for moves that take nothing for another queue."""
    return max(own_reclaim_minimum_s(leaf), preempt_minimum_s(leaf))


def _first(stated: Iterable[int | None]) -> int:
    return next((seconds for seconds in stated if seconds is not None), 0)
