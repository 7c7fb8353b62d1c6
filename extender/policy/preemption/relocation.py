"""Relocates a displaced pod; if no node takes it, evicts it with the pods that cannot run without
it."""

from collections.abc import Sequence

from extender.policy.preemption.candidates import Candidates
from extender.policy.preemption.eligibility import Eligibility
from extender.policy.preemption.statement import Statement
from extender.policy.preemption.victim_sets import unit_without_moves
from extender.policy.workloads.pod_classes import in_packing_order


def largest_first(candidates: Candidates, pods: Sequence[int]) -> list[int]:
    """The pods p in the order in which new places are looked for: of equal pods of a workload, the
    one that leaves it last comes first, so that the others are evicted when room runs out."""
    by_uid = {candidates.pods[p].uid: p for p in pods}
    last_first = sorted(pods, key=lambda p: -candidates.turn[p])
    return [by_uid[pod.uid] for pod in in_packing_order([candidates.pods[p] for p in last_first])]


def move_or_evict(statement: Statement, eligibility: Eligibility, p: int) -> bool:
    """Give a displaced pod a new place, or stop it, and then it is not in `statement.moving` any
    more; False where it may do neither."""
    if statement.relocate(p):
        return True
    candidates = statement.candidates
    statement.cancel_move(p)
    unit = unit_without_moves(statement, eligibility, p)
    if unit is None:
        return False
    statement.evict(unit)
    # What was put back to be stopped with it, and is not, is in the preemptor's way.
    members = candidates.members[candidates.owner[p]]
    return not any(statement.is_over(statement.ix_of(candidates.pods[m].node)) for m in members)
