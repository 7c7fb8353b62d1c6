"""Relocates a displaced pod; if no node takes it, evicts it with the pods that cannot run without
it."""

from collections.abc import Sequence

from extender.policy.preemption.candidates import Candidates
from extender.policy.preemption.eligibility import NOTHING, Eligibility
from extender.policy.preemption.statement import Statement
from extender.policy.preemption.victim_sets import unit_without_moves
from extender.policy.workloads.pod_classes import in_packing_order


def relocation_order(
    candidates: Candidates, eligibility: Eligibility, pods: Sequence[int]
) -> list[int]:
    """The pods p in the order in which new places are looked for: those that may not be evicted,
    then the largest, and of equal size those that would cost most if room runs out: the highest
    priority, the most work lost, and of a workload the pod that leaves it last."""
    rank, lost, owner = candidates.rank, candidates.lost, candidates.owner
    by_uid = {candidates.pods[p].uid: p for p in pods}
    costliest = sorted(pods, key=lambda p: (-rank[owner[p]], -lost[p], -candidates.turn[p]))
    in_order = [
        by_uid[pod.uid] for pod in in_packing_order([candidates.pods[p] for p in costliest])
    ]
    return sorted(in_order, key=lambda p: _may_be_evicted(candidates, eligibility, p))


def _may_be_evicted(candidates: Candidates, eligibility: Eligibility, p: int) -> bool:
    amounts = candidates.amounts_of((p,))
    is_open = eligibility.tier_of(candidates, candidates.owner[p], amounts) is not None
    return is_open and eligibility.is_safe[p] < NOTHING


def move_or_evict(
    statement: Statement, eligibility: Eligibility, p: int, wanted: frozenset[int] = frozenset()
) -> bool:
    """Give a displaced pod a new place, on the nodes `wanted` (by ix) only where no other has room,
    or evict it, which takes it out of `statement.moving`; False where neither is possible."""
    if statement.relocate(p, wanted):
        return True
    candidates = statement.candidates
    statement.cancel_move(p)
    unit = unit_without_moves(statement, eligibility, p)
    if unit is None:
        return False
    statement.evict(unit)
    # A pod that was put back to be evicted with it, and is not, is in the preemptor's way.
    members = candidates.members[candidates.owner[p]]
    return not any(statement.is_over(statement.ix_of(candidates.pods[m].node)) for m in members)
