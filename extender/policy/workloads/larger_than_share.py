"""Workloads larger than what their queues deserve, and which of these may run anyway."""

from collections.abc import Sequence

from extender.policy.queues.queue import RESOURCES, Queue
from extender.policy.queues.tree import PoolQueues
from extender.policy.workloads.pending import Pending, has_waited_long
from extender.state.model import GPU


def is_deserved(queue: Queue, pending: Pending) -> bool:
    """Whether the next chunk alone is within what the queue deserves."""
    need = pending.need()
    return all(need[r] <= queue.deserves[r] for r in RESOURCES if need[r])


def may_exceed_share(leaf: Queue, pending: Pending, queues: PoolQueues, now_s: int) -> bool:
    """Whether the workload is larger than what one of its queues deserves but may run anyway.

    It must have waited long. Each such queue must have held less than its share lately, and must
    find enough GPUs beside the used quotas of others, since these are served first.
    """
    need = pending.need()
    exceeded = [queue for queue in leaf.chain if not is_deserved(queue, pending)]
    if not exceeded or not has_waited_long(pending.workload, now_s):
        return False
    return all(
        queue.may_exceed_share(need) and need[GPU] <= _beside_used_quotas(queues, queue, exceeded)
        for queue in exceeded
    )


def _beside_used_quotas(queues: PoolQueues, queue: Queue, exceeded: Sequence[Queue]) -> int:
    """The milli-GPUs that the used quotas of the sibling queues leave to the queue.

    The whole is what the parent deserves of the pool; if it is in `exceeded`, what is left to it by
    this rule.
    """
    parent = queue.parent
    if parent is None:
        whole, siblings = queues.capacity[GPU], queues.roots
    else:
        whole, siblings = min(parent.deserves[GPU], queues.capacity[GPU]), parent.children
        if parent in exceeded:
            whole = _beside_used_quotas(queues, parent, exceeded)
    return whole - sum(
        min(each.quota[GPU], each.share[GPU]) for each in siblings if each is not queue
    )
