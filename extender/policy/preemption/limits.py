"""Makes room under the limits of the preemptor's queues by evicting work inside these queues."""

from itertools import product

from extender.policy.preemption.eligibility import Eligibility
from extender.policy.preemption.statement import Statement
from extender.policy.preemption.victim_sets import unit_at
from extender.policy.queues.queue import RESOURCES, Queue
from extender.policy.session import placed_amounts


def meet_limits(leaf: Queue, statement: Statement, eligibility: Eligibility) -> bool:
    """Evict work inside the preemptor's queues until they are within their limits, even if one was
    not before; returns whether they are."""
    amounts = placed_amounts(statement.placements)
    return all(
        _evict_inside(queue, r, queue.limit[r] - amounts[r], statement, eligibility)
        for queue in leaf.chain
        for r in RESOURCES
        if amounts[r]
    )


def _evict_inside(
    queue: Queue, resource: int, most: int, statement: Statement, eligibility: Eligibility
) -> bool:
    """Evict work inside the queue until it holds at most `most` of the resource; returns whether it
    does."""
    if queue.allocated[resource] <= most:
        return True
    candidates = statement.candidates
    # The lower tier is evicted first, even if that loses more work.
    for tier, p in product((0, 1), candidates.inside(queue, resource)):
        unit = unit_at(statement, eligibility, p) if candidates.is_here[p] else None
        if unit is not None and unit.tier <= tier:
            statement.evict(unit)
            if queue.allocated[resource] <= most:
                return True
    return False
