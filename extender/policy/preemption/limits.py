"""The limits of a taker's queues, which others that leave inside them may make room under."""

from extender.policy.preemption.eligibility import Terms
from extender.policy.preemption.statement import Trial
from extender.policy.preemption.victim_sets import unit_at
from extender.policy.queues.tree import RESOURCES, Queue
from extender.policy.session import placed_amounts
from extender.state.model import Amounts


def meet_limits(trial: Trial, terms: Terms) -> bool:
    """Whether the taker's queues stay within their limits, once work inside them is stopped.

    Where a queue is over its limit already that is no matter of the taker's, who has to wait.
    """
    trial.is_for_limits = False
    amounts, given = placed_amounts(trial.placements), trial.given()
    # No queue held more before than it holds now and all that was given.
    most = amounts[0] + given[0], amounts[1] + given[1], amounts[2] + given[2]
    return all(
        queue.has_room(most, queue.limit) or _meet_limit(trial, terms, queue, amounts)
        for queue in trial.claim.leaf.limited
    )


def _meet_limit(trial: Trial, terms: Terms, queue: Queue, amounts: Amounts) -> bool:
    herd, before = trial.herd, trial.held_before(queue)
    for r in RESOURCES:
        if not amounts[r] or before[r] + amounts[r] <= queue.limit[r]:
            continue
        # Who stops now has to stop, even if he could move.
        trial.is_for_limits = True
        if queue.allocated[r] + amounts[r] <= queue.limit[r]:
            continue
        if before[r] > queue.limit[r]:
            return False
        for p in herd.inside(queue, r):
            if queue.allocated[r] + amounts[r] <= queue.limit[r]:
                break
            unit = unit_at(trial, terms, p) if herd.is_here[p] else None
            if unit is not None:
                trial.stop(unit)
        if queue.allocated[r] + amounts[r] > queue.limit[r]:
            return False
    return True
