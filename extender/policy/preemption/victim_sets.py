"""The unit in which a pod would be stopped now: alone, or with all that can't go on without it."""

from extender.policy.preemption.eligibility import NOTHING, SURPLUS_ONLY, Terms
from extender.policy.preemption.statement import Trial, Unit


def unit_at(trial: Trial, terms: Terms, p: int) -> Unit | None:
    """The unit in which pod p would be stopped now, or None where that is not allowed."""
    herd = trial.herd
    pods = herd.unit_of(p)
    if pods is None or not herd.may_stop(pods):
        return None
    w, n_pods = herd.owner[p], len(pods)
    is_whole = n_pods > 1 or herd.n_live[w] == 1
    least = SURPLUS_ONLY if is_whole else NOTHING
    if any(terms.is_safe[each] >= least for each in pods):
        return None
    tier = terms.tier_of(herd, w, herd.amounts_of(pods))
    if tier is None:
        return None
    lost = herd.lost[p] if n_pods == 1 else sum(herd.lost[each] for each in pods)
    return Unit(pods, w, tier[0], tier[1], is_whole, lost)


def unit_without_moves(trial: Trial, terms: Terms, p: int) -> Unit | None:
    """The same; if need be the rest of its workload goes back that was to move."""
    unit = unit_at(trial, terms, p)
    if unit is None:
        owner = trial.herd.owner
        for other in [m for m in trial.moving if owner[m] == owner[p]]:
            trial.restore(other)
        unit = unit_at(trial, terms, p)
    return unit
