"""The unit in which a pod would be evicted: alone, or with the pods that cannot run without it."""

from extender.policy.preemption.eligibility import NOTHING, SURPLUS_ONLY, Eligibility
from extender.policy.preemption.statement import EvictionUnit, Statement


def unit_at(statement: Statement, eligibility: Eligibility, p: int) -> EvictionUnit | None:
    """The unit in which pod p would be evicted now, or None if that is not allowed."""
    candidates = statement.candidates
    pods = candidates.unit_of(p)
    if pods is None or not candidates.may_evict(pods):
        return None
    w, n_pods = candidates.owner[p], len(pods)
    is_whole = n_pods > 1 or candidates.n_live[w] == 1
    least = SURPLUS_ONLY if is_whole else NOTHING
    if any(eligibility.is_safe[each] >= least for each in pods):
        return None
    tier = eligibility.tier_of(candidates, w, candidates.amounts_of(pods))
    if tier is None:
        return None
    lost = candidates.lost[p] if n_pods == 1 else sum(candidates.lost[each] for each in pods)
    return EvictionUnit(pods, w, tier[0], tier[1], is_whole, lost)


def unit_without_moves(
    statement: Statement, eligibility: Eligibility, p: int
) -> EvictionUnit | None:
    """As `unit_at`; if need be, moves of other pods of the workload are cancelled."""
    unit = unit_at(statement, eligibility, p)
    if unit is None:
        owner = statement.candidates.owner
        for other in [m for m in statement.moving if owner[m] == owner[p]]:
            statement.cancel_move(other)
        unit = unit_at(statement, eligibility, p)
    return unit
