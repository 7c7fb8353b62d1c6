"""The status of a pod group: how many pods run, why it is pending, and whether it is stale."""

from collections.abc import Iterator
from datetime import UTC, datetime

from msgspec.structs import replace

from extender.api.kinds import GpuPodGroupStatus
from extender.api.objects import Condition
from extender.api.reasons import Reason, Refused
from extender.api.units import api_time
from extender.cycle.reports.conditions import SCHEDULED, VALID, condition
from extender.cycle.reports.wait_events import wait_message
from extender.policy.workloads.gangs import is_satisfied
from extender.state.model import WorkloadView
from extender.state.workloads.staleness import STALE


def group_status(
    workload: WorkloadView, wait: Refused | None, before: GpuPodGroupStatus
) -> GpuPodGroupStatus:
    """The status of a group with live pods; `wait` is why some of them are pending."""
    bound = [pod for pod in workload.pods if pod.state == "bound"]
    placed = [pod for pod in workload.pods if pod.state in ("bound", "reserved")]
    if bound and is_satisfied(workload, bound):
        is_scheduled, reason = True, Reason.SCHEDULED
    elif placed and is_satisfied(workload, placed):
        is_scheduled, reason = False, Reason.RESERVED
    else:
        is_scheduled, reason = False, wait.reason if wait else Reason.WAITING_FOR_TURN
    said = wait_message(workload, wait) if wait else ""
    conditions = [condition(SCHEDULED, is_scheduled, reason, said, before.conditions)]
    return GpuPodGroupStatus(
        project=workload.project,
        pending=len(workload.pods) - len(bound),
        scheduled=len(bound),
        running=sum(pod.started_at > 0 for pod in workload.pods),
        conditions=[*conditions, *_unknown_class(workload, before), *_staleness(workload, before)],
    )


def ended_status(before: GpuPodGroupStatus) -> GpuPodGroupStatus:
    """The status of a group without live pods."""
    others = [each for each in before.conditions if each.type != STALE]
    return replace(before, pending=0, scheduled=0, running=0, conditions=others)


def _unknown_class(workload: WorkloadView, before: GpuPodGroupStatus) -> Iterator[Condition]:
    """The condition that the group's priority class does not exist."""
    if name := workload.unknown_class:
        text = (
            f"there is no priority class {name}: until it exists, the group has the highest"
            f" priority of its pods, {workload.priority}"
        )
        yield condition(VALID, False, Reason.UNKNOWN_REFERENCE, text, before.conditions)


def _staleness(workload: WorkloadView, before: GpuPodGroupStatus) -> Iterator[Condition]:
    """The condition that says since when the gang is below its minimum, for a later leader."""
    if workload.stale_since is None:
        return
    grace = workload.stale_grace_s
    ends = f"all of it is stopped {grace} s after it fell" if grace is not None else "it may go on"
    stale = condition(
        STALE, True, Reason.GANG_INCOMPLETE, f"too few of its pods run: {ends}", before.conditions
    )
    since = datetime.fromtimestamp(workload.stale_since, UTC)
    yield replace(stale, last_transition_time=api_time(since))
