"""Which two queues are compared when one queue takes from another: those right below the lowest
queue that is above both."""

from collections.abc import Mapping

from extender.policy.queues.queue import Queue


def levels_of(leaf: Queue) -> dict[Queue, int]:
    """The queue and those above it, counted from the leaf."""
    return {queue: level for level, queue in enumerate(leaf.chain)}


def compared(victim: Queue, level_of: Mapping[Queue, int]) -> tuple[list[Queue], int]:
    """The victim's queues up to the one that is compared, and the level of the other side's queue
    that it is compared with; -1 where the victim's queue is above the other side's, or is it."""
    path = list[Queue]()
    for queue in victim.chain:
        if queue in level_of:
            return path, level_of[queue] - 1
        path.append(queue)
    return path, len(level_of) - 1
