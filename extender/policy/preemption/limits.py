"""Makes room under the limits of the preemptor's queues by evicting work inside these queues."""

from itertools import product

from extender.policy.preemption.eligibility import Eligibility
from extender.policy.preemption.statement import Statement
from extender.policy.preemption.victim_sets import unit_at
from extender.policy.queues.queue import RESOURCES, Queue
from extender.policy.session import placed_amounts
from extender.state.model import Amounts


def meet_limits(leaf: Queue, statement: Statement, eligibility: Eligibility) -> bool:
    """Whether the preemptor's queues are within their limits, once work inside is evicted: also
    where one was over its limit before."""
    amounts, given = placed_amounts(statement.placements), statement.given()
    # No queue held more before than it holds now and all that was given.
    most = amounts[0] + given[0], amounts[1] + given[1], amounts[2] + given[2]
    return all(
        queue.has_room(most, queue.limit) or _meet_limit(statement, eligibility, queue, amounts)
        for queue in leaf.limited
    )


def _meet_limit(
    statement: Statement, eligibility: Eligibility, queue: Queue, amounts: Amounts
) -> bool:
    candidates, before = statement.candidates, statement.held_before(queue)
    for r in RESOURCES:
        if not amounts[r] or before[r] + amounts[r] <= queue.limit[r]:
            continue
        if queue.allocated[r] + amounts[r] <= queue.limit[r]:
            continue
        # What is in the lower tier leaves first, whatever else would lose less.
        for tier, p in product((0, 1), candidates.inside(queue, r)):
            if queue.allocated[r] + amounts[r] <= queue.limit[r]:
                break
            unit = unit_at(statement, eligibility, p) if candidates.is_here[p] else None
            if unit is not None and unit.tier <= tier:
                statement.evict(unit)
        if queue.allocated[r] + amounts[r] > queue.limit[r]:
            return False
    return True
