"""Protects running work that is larger than its queue's share and waited long before it started.

The queue holds too much while such work runs, but held too little while it waited.
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

#: Seconds for which such work is protected from queues above their quota. Twelve hours let a long
#: training end or save its work, and are half of the period of `held_lately`.
PROTECTION_S: Final = 43_200


@dataclass(slots=True)
class LongWaitProtection:
    """The protected workloads of the pool, found once for all rules of the stage."""

    session: Session
    _protected: list[int] | None = None

    def protect(
        self, candidates: Candidates, leaf: Queue, surplus: Sequence[Amounts], is_safe: bytearray
    ) -> bytearray:
        """`is_safe`, with the minimums of these workloads protected where the preemptor ends above
        quota.

        `surplus` is what the preemptor's queue `leaf` and each one above it would hold above quota.
        """
        if not any(map(any, surplus)):
            return is_safe
        if self._protected is None:
            self._protected = [
                w for w in range(len(candidates.workloads)) if self._is_protected(candidates, w)
            ]
        if not self._protected:
            return is_safe
        level_of, found = levels_of(leaf), bytearray(is_safe)
        for w in self._protected:
            _, level = compared(candidates.leaves[w], level_of)
            if level >= 0 and any(surplus[level]):
                for p in candidates.members[w]:
                    found[p] = max(found[p], SURPLUS_ONLY)
        return found

    def _is_protected(self, candidates: Candidates, w: int) -> bool:
        """Whether the workload waited long, started within `PROTECTION_S`, and its minimum alone
        exceeds what one of its queues is due."""
        workload, now_s = candidates.workloads[w], self.session.snapshot.now_s
        started_s = max(pod.started_at for pod in workload.pods)
        if now_s - started_s >= PROTECTION_S or not has_waited_long(workload, started_s):
            return False
        held = sorted(pod.held_milli for pod in workload.pods if pod.held_milli)
        least = sum(held[: least_pods(workload)])
        return any(least > queue.due[GPU] for queue in candidates.leaves[w].chain)
