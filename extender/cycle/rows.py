"""Builds ledger rows of placed pods, and reservation rows for moved pods."""

from msgspec.structs import replace

from extender.api.kinds import MoveHold, Row
from extender.api.ledger import guaranteed_milli
from extender.policy.plan import Placement
from extender.state.model import PodView, WorkloadView


def placed_row(workload: WorkloadView, placement: Placement, **made: int | str) -> Row:
    """The ledger row of one placed pod; `made` gives its state, epoch and reserved_at."""
    pod = placement.pod
    return Row(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        project=workload.project,
        group=workload.name if workload.is_group else "",
        cards=list(placement.cards),
        counted=dict(pod.demand.counted),
        compute_request_milli=guaranteed_milli(pod.compute_request_milli, placement.cards),
        compute_limit_milli=pod.compute_limit_milli,
        non_preemptible=not workload.is_preemptible,
        has_floor=workload.replica is not None,
        restart_policy=pod.restart_policy,
        **made,  # type: ignore[arg-type]
    )


def kept_row(workload: WorkloadView, placement: Placement, owner: str, **made: int | str) -> Row:
    """The row that reserves `placement` for the pod that `owner` creates after the moved one."""
    demand = placement.pod.demand
    move = MoveHold(owner=owner, cpu_milli=demand.cpu_milli, memory_mib=demand.memory_mib)
    return replace(placed_row(workload, placement, state="nominated", **made), move=move)


def successor_row(workload: WorkloadView, pod: PodView, kept: Row, reserved_at: int) -> Row:
    """The row of `pod` on the reservation in `kept`, with the same epoch."""
    placement = Placement(pod, "", tuple(kept.cards))
    return placed_row(
        workload, placement, state="nominated", epoch=kept.epoch, reserved_at=reserved_at
    )
