"""Who is displaced finds another place, or stops with all that can't go on without it."""

from collections.abc import Sequence

from extender.policy.preemption.candidates import Herd
from extender.policy.preemption.eligibility import Terms
from extender.policy.preemption.statement import Trial
from extender.policy.preemption.victim_sets import unit_without_moves
from extender.policy.workloads.pod_classes import in_packing_order


def largest_first(herd: Herd, pods: Sequence[int]) -> list[int]:
    """The pods p in the order in which new places are looked for: of equal pods of a workload, the
    one that leaves it last comes first, so that the others are evicted when room runs out."""
    by_uid = {herd.pods[p].uid: p for p in pods}
    last_first = sorted(pods, key=lambda p: -herd.turn[p])
    return [by_uid[pod.uid] for pod in in_packing_order([herd.pods[p] for p in last_first])]


def move_or_stop(trial: Trial, terms: Terms, p: int) -> bool:
    """Give a displaced pod a new place, or stop it, and then it is not in `trial.moving` any more;
    False where it may do neither."""
    if trial.resettle(p):
        return True
    herd = trial.herd
    trial.restore(p)
    unit = unit_without_moves(trial, terms, p)
    if unit is None:
        return False
    trial.stop(unit)
    # What was put back to be stopped with it, and is not, is in the taker's way.
    members = herd.members[herd.owner[p]]
    return not any(trial.is_over(trial.ix_of(herd.pods[m].node)) for m in members)
