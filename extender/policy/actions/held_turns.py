"""Work that keeps its places for a while, because its queue waited long for this turn.

The work is larger than its queue's share: the queue holds too much while it runs, and held too
little while it waited.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from extender.policy.preemption.candidates import Candidates
from extender.policy.preemption.eligibility import SURPLUS_ONLY
from extender.policy.queues.common_ancestor import compared, levels_of
from extender.policy.queues.queue import Queue
from extender.policy.session import Session
from extender.policy.workloads.gangs import least_pods
from extender.policy.workloads.pending import has_waited_long
from extender.state.model import GPU, Amounts

#: Seconds for which work that is larger than its queue's share, and waited long until the queue had
#: its turn, keeps its places against queues above their quota. Twelve hours let a long training end
#: or save its work, and are half of what `held_lately` looks back on.
TURN_S: Final = 43_200


@dataclass(slots=True)
class HeldTurns:
    """What has its turn in the pool: found once for all rules of the stage."""

    session: Session
    _in_turn: list[int] | None = None

    def protect(
        self, candidates: Candidates, leaf: Queue, surplus: Sequence[Amounts], is_safe: bytearray
    ) -> bytearray:
        """What has its turn is safe from preemptors above their quota; see `TURN_S`.

        `surplus` is what the preemptor's queue `leaf` and each one above it would hold above quota.
        """
        if not any(map(any, surplus)):
            return is_safe
        if self._in_turn is None:
            self._in_turn = [
                w for w in range(len(candidates.workloads)) if self._has_turn(candidates, w)
            ]
        if not self._in_turn:
            return is_safe
        level_of, found = levels_of(leaf), bytearray(is_safe)
        for w in self._in_turn:
            _, level = compared(candidates.leaves[w], level_of)
            if level >= 0 and any(surplus[level]):
                for p in candidates.members[w]:
                    found[p] = max(found[p], SURPLUS_ONLY)
        return found

    def _has_turn(self, candidates: Candidates, w: int) -> bool:
        """Whether the workload, of which the minimum alone is larger than what a queue of its is
        due, runs since it waited long for its turn."""
        workload, now_s = candidates.workloads[w], self.session.snapshot.now_s
        started_s = max(pod.started_at for pod in workload.pods)
        if now_s - started_s >= TURN_S or not has_waited_long(workload, started_s):
            return False
        held = sorted(pod.held_milli for pod in workload.pods if pod.held_milli)
        least = sum(held[: least_pods(workload)])
        return any(least > queue.due[GPU] for queue in candidates.leaves[w].chain)
