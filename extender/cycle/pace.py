"""When to decide anew: at once after a change that a decision reads, and from time to time.

Time alone can change a decision (minimum run times, back-offs, reservation windows), and few of
these times are known in advance. So without a change, the next decision follows after a pause that
grows with the cost of a decision.
"""

from typing import Final, NamedTuple

from extender.policy.plan import Plan

#: Without a change, decisions use at most this part of one core.
MOST_OF_A_CORE: Final = 0.05
#: The longest pause in seconds, which bounds the wait if a change is ever overlooked.
LONGEST_S: Final = 30.0


class Basis(NamedTuple):
    """The inputs of a decision; equal if a decision would read the same."""

    model_version: object
    protected_pods: object


class Pace:
    """Remembers the inputs of the last decision. Times are seconds of the loop's clock."""

    def __init__(self, tick_s: float) -> None:
        """`tick_s` is the shortest pause, and the pause after a plan with writes, because some of
        them may be held back or fail."""
        self._tick_s = tick_s
        #: The inputs of the last decision; equal to no other before the first.
        self.basis = Basis(None, None)
        self._next_at = float("-inf")

    def is_due(self, basis: Basis, now: float) -> bool:
        """Whether to decide now."""
        return basis != self.basis or now >= self._next_at

    def note(self, basis: Basis, plan: Plan, computed_s: float, now: float) -> None:
        """The plan was decided on `basis` in `computed_s` CPU seconds, and carried out."""
        pause_s = self._tick_s
        if plan.cut:
            pause_s = 0.0
        elif not (plan.admissions or plan.evictions or plan.moves or plan.drops):
            pause_s = min(LONGEST_S, max(pause_s, computed_s / MOST_OF_A_CORE))
        self.basis, self._next_at = basis, now + pause_s
