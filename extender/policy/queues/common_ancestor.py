"""Which two queues are compared in a reclaim: the children of the lowest common ancestor that lead
to the victim's leaf and to the reclaimer's leaf."""

from collections.abc import Mapping

from extender.policy.queues.queue import Queue


def levels_of(leaf: Queue) -> dict[Queue, int]:
    """The level of the leaf (0) and of each of its ancestors."""
    return {queue: level for level, queue in enumerate(leaf.chain)}


def compared(victim: Queue, level_of: Mapping[Queue, int]) -> tuple[list[Queue], int]:
    """The victim's queues from the leaf up to the compared one, and the level of the compared queue
    of the reclaimer; -1 if the reclaimer's leaf is `victim` or one of its ancestors."""
    path = list[Queue]()
    for queue in victim.chain:
        if queue in level_of:
            return path, level_of[queue] - 1
        path.append(queue)
    return path, len(level_of) - 1
