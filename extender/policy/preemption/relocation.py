"""Moves a displaced pod; if it fits nowhere, evicts it with the pods that cannot run without it."""

from collections.abc import Sequence

from extender.policy.preemption.candidates import Candidates
from extender.policy.preemption.eligibility import NOTHING, Eligibility
from extender.policy.preemption.statement import Statement
from extender.policy.preemption.victim_sets import unit_without_moves
from extender.policy.workloads.pod_classes import in_packing_order


def relocation_order(
    candidates: Candidates, eligibility: Eligibility, pods: Sequence[int]
) -> list[int]:
    """The pods p in the order in which they are placed elsewhere: first those that may not be
    evicted, then the largest. Among equal sizes the costliest is first: of the highest priority,
    then with the most work lost, then the last in its workload's eviction order."""
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
    statement: Statement, eligibility: Eligibility, p: int, wanted: frozenset[int]
) -> bool:
    """Place a displaced pod elsewhere, on the nodes `wanted` (by ix) only if no other has room, or
    evict it and remove it from `statement.moving`; False if neither is possible."""
    if statement.relocate(p, wanted):
        return True
    candidates = statement.candidates
    statement.cancel_move(p)
    unit = unit_without_moves(statement, eligibility, p)
    if unit is None:
        return False
    statement.evict(unit)
    # A pod of the workload whose move was cancelled without an eviction may be in the way.
    members = candidates.members[candidates.owner[p]]
    return not any(statement.is_over(statement.ix_of(candidates.pods[m].node)) for m in members)
