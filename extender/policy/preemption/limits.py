"""Makes room under the limits of the preemptor's queues by evicting work inside these queues."""

from itertools import product

from extender.policy.preemption.eligibility import Eligibility
from extender.policy.preemption.statement import Statement
from extender.policy.preemption.victim_sets import unit_at
from extender.policy.queues.queue import RESOURCES, Queue
from extender.policy.session import placed_amounts
from extender.state.model import Amounts


def meet_limits(leaf: Queue, statement: Statement, eligibility: Eligibility) -> bool:
    """Evict work inside the preemptor's queues until they are within their limits, even if one was
    not before; returns whether they are."""
    amounts, freed = placed_amounts(statement.placements), statement.evicted_amounts()
    # An upper bound of what any queue held before, plus the placements.
    most = amounts[0] + freed[0], amounts[1] + freed[1], amounts[2] + freed[2]
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
        # The lower tier is evicted first, even if that loses more work.
        for tier, p in product((0, 1), candidates.inside(queue, r)):
            if queue.allocated[r] + amounts[r] <= queue.limit[r]:
                break
            unit = unit_at(statement, eligibility, p) if candidates.is_here[p] else None
            if unit is not None and unit.tier <= tier:
                statement.evict(unit)
        if queue.allocated[r] + amounts[r] > queue.limit[r]:
            return False
    return True
