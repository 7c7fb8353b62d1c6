"""Minimum run times: work that ran less than its queues promise gives nothing but its surplus."""

from collections.abc import Callable, Iterable

from extender.policy.preemption.candidates import Herd
from extender.policy.queues.tree import Queue
from extender.policy.session import Session


def protected_by(
    session: Session, herd: Herd, minimum_s: Callable[[Iterable[Queue]], int]
) -> bytearray:
    """1 for every workload of the herd that ran less than the minimum of its queues."""
    now_s = session.snapshot.now_s
    minimums = {leaf: minimum_s(leaf.chain) for leaf in set(herd.leaves)}
    if not any(minimums.values()):
        return herd.nobody
    protected = bytearray(len(herd.workloads))
    for w, (workload, leaf) in enumerate(zip(herd.workloads, herd.leaves, strict=True)):
        if minimums[leaf]:
            ran_s = max(now_s - pod.started_at if pod.started_at else 0 for pod in workload.pods)
            protected[w] = ran_s < minimums[leaf]
    return protected
