"""Minimum run times: work that ran less than its queues guarantee is neither evicted nor moved.

A gang has run for as long as its oldest pod, and until its minimum is over only its surplus may be
evicted. Pods that are a workload each (a minimum of one pod: trials of a search) are protected one
by one. Nominated work, which has not started, is not protected, whether an earlier cycle nominated
it or an earlier round of this one.
"""

from collections.abc import Callable, Collection

from extender.policy.preemption.candidates import Candidates
from extender.policy.preemption.eligibility import NOTHING, SURPLUS_ONLY
from extender.policy.queues.queue import Queue
from extender.policy.session import Session
from extender.policy.workloads.gangs import are_independent
from extender.state.model import PodView


def protected_by(
    session: Session, candidates: Candidates, minimum_of: Callable[[Queue], int]
) -> bytearray:
    """`Eligibility.is_safe` by these minimum run times, which are in seconds by leaf queue."""
    now_s, promised = session.snapshot.now_s, session.snapshot.promised
    minimums = {leaf: minimum_of(leaf) for leaf in set(candidates.leaves)}
    protected = bytearray(len(candidates.pods))
    if not any(minimums.values()):
        return protected
    for w, (workload, leaf) in enumerate(zip(candidates.workloads, candidates.leaves, strict=True)):
        if not minimums[leaf] or all(_is_new(pod, promised) for pod in workload.pods):
            continue
        ran_s = {p: _ran_s(candidates.pods[p], now_s) for p in candidates.members[w]}
        if are_independent(workload):
            for p in candidates.members[w]:
                protected[p] = NOTHING if ran_s[p] < minimums[leaf] else 0
        elif max(_ran_s(pod, now_s) for pod in workload.pods) < minimums[leaf]:
            for p in candidates.members[w]:
                protected[p] = SURPLUS_ONLY
    return protected


def _is_new(pod: PodView, promised: Collection[str]) -> bool:
    """Whether the pod does not run: it is pending or nominated, by an earlier cycle or this one."""
    return pod.state in ("gated", "nominated") or pod.uid in promised


def _ran_s(pod: PodView, now_s: int) -> int:
    return now_s - pod.started_at if pod.started_at else 0
