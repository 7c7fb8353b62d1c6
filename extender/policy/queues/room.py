"""Whether limits, and quotas for non-preemptible workloads, allow a queue to hold more."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from extender.api.reasons import Reason, Refused
from extender.api.units import count_gpus, format_cpus
from extender.policy.queues.months import spent_sentence
from extender.policy.queues.queue import RESOURCES, Queue
from extender.state.model import CPU, GPU, Amounts, WorkloadView

_OVER_NP_QUOTA: Final = Reason.NON_PREEMPTIBLE_OVER_QUOTA


class _Over(NamedTuple):
    """A bound that a queue may not exceed: with `more` it would hold more than `most`."""

    reason: Reason
    queue: Queue
    resource: int
    more: int
    has: int
    most: int

    @property
    def ends_with_preemptible(self) -> bool:
        """Whether it is a limit or budget, and the stated limit allows the work beside
        non-preemptible work alone."""
        if self.reason is _OVER_NP_QUOTA:
            return False
        limit = self.queue.figures.figures[self.resource].limit
        return self.queue.allocated_np[self.resource] + self.more <= limit


def check_room(
    leaf: Queue, workload: WorkloadView, amounts: Amounts, *, is_now: bool
) -> Refused | None:
    """Why the queue may not hold `amounts` more; None if it may.

    For a workload that starts now (`is_now`), terminating pods still count.
    """
    is_np = not workload.is_preemptible
    if leaf.may_hold(amounts, is_np=is_np) and not (is_now and leaf.has_leaving_pods()):
        return None
    exceeded = _exceeded(leaf, amounts, is_np=is_np, is_now=is_now)
    first = next(exceeded, None)
    if first is None:
        return None
    if is_np and first.ends_with_preemptible and not leaf.may_hold_np(amounts):
        # It does not help that preemptible work under the limit ends.
        first = next((each for each in exceeded if each.reason is _OVER_NP_QUOTA), first)
    return _refuse(first, workload)


def _exceeded(leaf: Queue, amounts: Amounts, *, is_np: bool, is_now: bool) -> Iterator[_Over]:
    """The limits and quotas, from the leaf up, that the queue would exceed."""
    for queue in leaf.chain:
        for resource in RESOURCES:
            more = amounts[resource]
            if more == 0:
                continue
            leaving = queue.leaving[resource] if is_now else 0
            has, most = queue.allocated[resource] + leaving, queue.limit[resource]
            if has + more > most:
                is_spent = queue.is_spent and resource == GPU
                reason = Reason.OVER_BUDGET if is_spent else Reason.OVER_LIMIT
                yield _Over(reason, queue, resource, more, has, most)
            if not is_np:
                continue
            leaving = queue.leaving_np[resource] if is_now else 0
            has, most = queue.allocated_np[resource] + leaving, queue.np_quota[resource]
            if has + more > most:
                yield _Over(_OVER_NP_QUOTA, queue, resource, more, has, most)


def is_ever_allowed(leaf: Queue, need: Amounts, *, is_np: bool) -> bool:
    """Whether `need` alone is within the limits and, if `is_np`, the non-preemptible quotas."""
    for queue in leaf.chain:
        for r in RESOURCES:
            most = min(queue.limit[r], queue.np_quota[r]) if is_np else queue.limit[r]
            if need[r] > most:
                return False
    return True


def format_amount(resource: int, amount: int) -> str:
    """An amount of one resource, as text."""
    if resource == GPU:
        return count_gpus(amount)
    return format_cpus(amount) if resource == CPU else f"{amount} MiB of memory"


def _refuse(over: _Over, workload: WorkloadView) -> Refused:
    reason, queue, resource, more, has, most = over
    needs = f"{workload.key}: needs {format_amount(resource, more)}, {queue.name}"
    month = queue.figures.gpu.month
    if reason is Reason.OVER_BUDGET and month is not None:
        return Refused(reason, f"{needs} {spent_sentence(month, queue.quota[GPU])}")
    word = "limit" if reason is Reason.OVER_LIMIT else "quota for non-preemptible work"
    of = f"its {word} of {format_amount(resource, most)}"
    return Refused(reason, f"{needs} has {format_amount(resource, has)} of {of}")
