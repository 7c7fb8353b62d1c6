"""What users read about stage `reclaim`: why work was reclaimed from a queue, and why a queue
reclaims no more."""

from collections.abc import Sequence

from extender.api.reasons import Reason, Refused
from extender.api.units import count_gpus, format_gpus
from extender.policy.preemption.statement import PreemptionRequest
from extender.policy.queues.queue import RESOURCES, Queue, frozen
from extender.policy.queues.room import format_amount
from extender.state.model import GPU, UNLIMITED
from extender.state.tally import sum_amounts


def describe_side(side: Sequence[Queue], *, is_by_quota: bool) -> str:
    """What the queues of one side of a comparison hold, the compared one last. Users are named only
    if users of one project are compared."""
    parts = []
    for queue in side:
        if queue.is_user != side[-1].is_user:
            continue
        name, held = queue.name.replace("/", " "), count_gpus(queue.held[GPU])
        bound = (queue.quota if is_by_quota else queue.deserves)[GPU]
        what = "quota" if is_by_quota else _name_of_entitlement(queue, GPU)
        figure = format_gpus(bound) if bound < UNLIMITED else "unlimited"
        parts.append(f"{name} holds {held} ({what} {figure})")
    return ", ".join(parts)


def _name_of_entitlement(queue: Queue, resource: int) -> str:
    """What the queue deserves: its fair share or, if that is larger, its quota."""
    share, quota = queue.share_to_take[resource], queue.quota[resource]
    return "fair share" if share >= quota else "quota"


def explain_share(request: PreemptionRequest, lacks: Refused | None, where: str) -> Refused:
    """Says that nothing is reclaimed for the request, after the known reason why it does not fit.

    `where` names the pool of these figures, if there are several.
    """
    leaf, bound = request.leaf, request.leaf.deserves
    then = sum_amounts((frozen(leaf.allocated), request.need))
    short = [r for r in RESOURCES if request.need[r] and then[r] > bound[r]]
    resource = GPU if GPU in short else short[0]
    need, would_hold, most = (
        format_amount(resource, amounts[resource]) for amounts in (request.need, then, bound)
    )
    what = _name_of_entitlement(leaf, resource)
    share = (
        f"with this work {leaf.name} would hold {would_hold}{where}, above its {what} of {most},"
        " so nothing is reclaimed for it"
    )
    if lacks is not None and lacks.reason is Reason.INSUFFICIENT_GPU and lacks.detail:
        return Refused(Reason.OVER_FAIR_SHARE, f"{lacks.detail}; {share}")
    return Refused(Reason.OVER_FAIR_SHARE, f"{request.key}: needs {need}; {share}")


def explain_band(request: PreemptionRequest, most: int, percent: int) -> Refused:
    """Says that the project would end within the band below its share; it reclaims up to `most`
    milli-GPU."""
    project = request.leaf.project
    would_hold = project.allocated[GPU] + request.need[GPU]
    return Refused(
        Reason.OVER_FAIR_SHARE,
        f"{request.key}: above its quota {project.name} reclaims only up to {count_gpus(most)}"
        f" (reclaimBandPercent: {percent} % below its fair share of"
        f" {format_gpus(project.deserves[GPU])}), and with this work it would hold"
        f" {format_gpus(would_hold)}",
    )
