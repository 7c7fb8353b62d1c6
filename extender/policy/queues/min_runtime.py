"""Which minimum run time protects a victim: that of one of its queues, not the longest of all."""

from collections.abc import Iterable, Mapping

from extender.policy.queues.common_ancestor import compared
from extender.policy.queues.queue import Queue


def preempt_minimum_s(leaf: Queue) -> int:
    """The minimum of the leaf, or of its nearest ancestor that states one."""
    return _first_stated(queue.preempt_min_runtime_s for queue in leaf.chain)


def reclaim_minimum_s(leaf: Queue, level_of: Mapping[Queue, int]) -> int:
    """The minimum against a reclaim by the queue with these levels (`levels_of`).

    It is that of the leaf's compared queue, or of its nearest ancestor that states one. If none
    does, the nearest queue below the compared one that states a minimum protects its workloads.
    """
    path, _ = compared(leaf, level_of)
    chain = leaf.chain[max(0, len(path) - 1) :]
    return _first_stated(queue.reclaim_min_runtime_s for queue in (*chain, *reversed(path)))


def own_reclaim_minimum_s(leaf: Queue) -> int:
    """The reclaim minimum of the leaf, or of its nearest ancestor that states one."""
    return _first_stated(queue.reclaim_min_runtime_s for queue in leaf.chain)


def move_minimum_s(leaf: Queue) -> int:
    """The longer of both minimums, for moves, which take nothing for another queue."""
    return max(own_reclaim_minimum_s(leaf), preempt_minimum_s(leaf))


def _first_stated(stated: Iterable[int | None]) -> int:
    return next((seconds for seconds in stated if seconds is not None), 0)
