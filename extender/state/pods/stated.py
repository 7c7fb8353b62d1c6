"""What a pod states in annotations and labels that may be malformed: its gang, compute and run."""

from msgspec import Struct

from extender.api.aliases import check_aliases
from extender.api.demand import Demand, read_compute
from extender.api.objects import Pod
from extender.api.reasons import Reason, Refused
from extender.api.units import MILLI_PER_GPU, UnitError
from extender.api.workload import (
    SubGroups,
    read_checkpoint,
    read_floor,
    read_min_member,
    read_run,
    read_sub_groups,
    read_weight,
)


class Stated(Struct, frozen=True, gc=False, kw_only=True):
    """The gang's size in pods, the shares of a card's compute, and how the pod runs.

    `min_member` and `weight` are 0 if the pod states none. `checkpoint_s` is None if it does not
    say how often it saves its work, `run_s` if it does not say how long it runs.
    """

    min_member: int
    sub_groups: SubGroups
    compute_request_milli: int
    compute_limit_milli: int
    checkpoint_s: int | None
    weight: int
    run_s: int | None


def read_stated(pod: Pod, demand: Demand) -> tuple[Stated, Refused | None]:
    """What the pod states, up to the first value that is malformed, and why that is refused."""
    meta, refused = pod.metadata, None
    min_member = weight = 0
    checkpoint_s: int | None = None
    run_s: int | None = None
    sub_groups: SubGroups = ()
    request_milli, limit_milli = min(demand.milli, MILLI_PER_GPU), MILLI_PER_GPU
    try:
        check_aliases(meta)
        min_member = read_min_member(meta.annotations, meta.labels)
        sub_groups = read_sub_groups(meta.annotations, min_member)
        request_milli, limit_milli = read_compute(pod, demand)
        read_floor(meta.annotations)
        checkpoint_s = read_checkpoint(meta.annotations)
        weight = read_weight(meta.annotations)
        run_s = read_run(pod)
    except UnitError as error:
        refused = Refused(Reason.INVALID_REQUEST, f"{meta.key}: {error}")
    stated = Stated(
        min_member=min_member,
        sub_groups=sub_groups,
        compute_request_milli=request_milli,
        compute_limit_milli=limit_milli,
        checkpoint_s=checkpoint_s,
        weight=weight,
        run_s=run_s,
    )
    return stated, refused
