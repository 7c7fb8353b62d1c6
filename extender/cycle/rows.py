"""The ledger row of a placed pod."""

from extender.api.kinds import Row
from extender.policy.plan import Placement
from extender.state.model import WorkloadView


def row_of(workload: WorkloadView, placement: Placement, **made: int | str) -> Row:
    """The ledger row of one placed pod; `made` gives its state, epoch and reserved_at."""
    pod = placement.pod
    return Row(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        project=workload.project,
        group=workload.name if workload.is_group else "",
        cards=list(placement.cards),
        compute_request_milli=pod.compute_request_milli,
        compute_limit_milli=pod.compute_limit_milli,
        non_preemptible=not workload.is_preemptible,
        **made,  # type: ignore[arg-type]
    )
