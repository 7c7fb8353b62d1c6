"""Whether limits, and quotas for non-preemptible workloads, allow a queue to hold more."""

from extender.api.reasons import Reason, Refused
from extender.api.units import count_gpus, format_cpus
from extender.policy.queues.months import spent_sentence
from extender.policy.queues.queue import RESOURCES, Queue
from extender.state.model import CPU, GPU, Amounts, WorkloadView


def check_room(
    leaf: Queue, workload: WorkloadView, amounts: Amounts, *, is_now: bool
) -> Refused | None:
    """Why the queue may not hold `amounts` more; None if it may.

    For a workload that starts now (`is_now`), terminating pods still count.
    """
    is_np = not workload.is_preemptible
    if leaf.may_hold(amounts, is_np=is_np) and not (is_now and leaf.has_leaving_pods()):
        return None
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
                return _refuse(reason, workload, (queue, resource, more, has, most))
            if not is_np:
                continue
            leaving = queue.leaving_np[resource] if is_now else 0
            has, most = queue.allocated_np[resource] + leaving, queue.np_quota[resource]
            if has + more > most:
                figures = queue, resource, more, has, most
                return _refuse(Reason.NON_PREEMPTIBLE_OVER_QUOTA, workload, figures)
    return None


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


def _refuse(
    reason: Reason, workload: WorkloadView, figures: tuple[Queue, int, int, int, int]
) -> Refused:
    queue, resource, more, has, bound = figures
    needs = f"{workload.key}: needs {format_amount(resource, more)}, {queue.name}"
    month = queue.figures.gpu.month
    if reason is Reason.OVER_BUDGET and month is not None:
        return Refused(reason, f"{needs} {spent_sentence(month, queue.quota[GPU])}")
    word = "limit" if reason is Reason.OVER_LIMIT else "quota for non-preemptible work"
    of = f"its {word} of {format_amount(resource, bound)}"
    return Refused(reason, f"{needs} has {format_amount(resource, has)} of {of}")
