"""Whether a blocked workload could take a place back from another one, by reclaim or preemption.

The answer is an estimate from the queues alone, for the time at which the blocked workload could
start. Where it is in doubt it is no, so that the place is kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from extender.policy.plan import Settings
from extender.policy.queues.common_ancestor import compared, levels_of
from extender.policy.queues.tree import RESOURCES, Queue
from extender.policy.workloads.first_kinds import FIRST_KINDS
from extender.state.model import Amounts, PoolView, WorkloadView


@dataclass(slots=True)
class TakeBack:
    """What the blocked `workload` of queue `leaf` could take.

    `is_in_quota` says for the leaf and each queue above it whether the workload, once it starts,
    keeps that queue within its quota. `can_reclaim` and `can_preempt` say which stages serve it.
    """

    workload: WorkloadView
    leaf: Queue
    is_in_quota: Sequence[bool]
    can_reclaim: bool
    can_preempt: bool
    _level_of: Mapping[Queue, int] = field(init=False)

    def __post_init__(self) -> None:
        self._level_of = levels_of(self.leaf)

    def could_take(self, leaf: Queue, other: WorkloadView, amounts: Amounts, after_s: int) -> bool:
        """Whether it could take a place of `other` in queue `leaf` that is given only now.

        `amounts` are what the queue does not hold yet, and the place is taken in `after_s`
        seconds.
        """
        preempt_s = max(queue.preempt_min_runtime_s for queue in leaf.chain)
        if preempt_s <= after_s and self.could_preempt(leaf, other):
            return True
        reclaim_s = max(queue.reclaim_min_runtime_s for queue in leaf.chain)
        is_old = reclaim_s <= after_s and other.is_preemptible
        return is_old and self.could_reclaim(leaf, amounts)

    def could_take_running(self, leaf: Queue, other: WorkloadView) -> bool:
        """The same for a place that `other` holds already, once its minimum run time is over."""
        return other.is_preemptible and (
            self.could_preempt(leaf, other) or self.could_reclaim(leaf)
        )

    def could_reclaim(self, leaf: Queue, more: Amounts = (0, 0, 0)) -> bool:
        """Whether reclaim takes from the queue when it holds so much more; see stage `reclaim`."""
        path, level = compared(leaf, self._level_of)
        if not self.can_reclaim or not path:
            return False
        held = {queue: [queue.allocated[r] + more[r] for r in RESOURCES] for queue in path}
        resources = [r for r in RESOURCES if more[r]] or RESOURCES
        if any(all(held[q][r] > _kept(q, r, path) for q in path) for r in resources):
            return True
        return self.is_in_quota[level] and any(
            all(held[q][r] > _owed(q, r, path) for q in path) for r in resources
        )

    def could_preempt(self, leaf: Queue, other: WorkloadView) -> bool:
        """Whether preemption evicts `other` for it, once its minimum run time is over."""
        return self.can_preempt and other.is_preemptible and self.precedes(leaf, other)

    def precedes(self, leaf: Queue, other: WorkloadView) -> bool:
        """Whether it is of the same project and goes before `other`, by kind within quota or by
        priority."""
        mine = self.workload
        if leaf.project is not self.leaf.project:
            return False
        if (mine.kind in FIRST_KINDS) is not (other.kind in FIRST_KINDS):
            # In doubt, that is above quota, training does not go before a session.
            is_first = mine.kind in FIRST_KINDS
            return is_first and (all(self.is_in_quota) or other.priority < mine.priority)
        return other.priority < mine.priority


def take_back_of(
    workload: WorkloadView,
    leaf: Queue,
    at_start: Mapping[Queue, Sequence[int]],
    view: PoolView,
    settings: Settings,
) -> TakeBack:
    """What the workload could take, where its queues would hold `at_start` once it has started."""
    can_take = view.has_preemption and workload.doubt is None
    is_in_quota = tuple(
        all(at_start[queue][r] <= queue.quota[r] for r in RESOURCES) for queue in leaf.chain
    )
    is_entitled = all(
        at_start[queue][r] <= queue.deserves[r] for queue in leaf.chain for r in RESOURCES
    )
    # Within the reclaim band a project above its quota takes nothing.
    is_in_band = settings.reclaim_band_percent > 0 and not all(is_in_quota)
    return TakeBack(
        workload,
        leaf,
        is_in_quota,
        can_reclaim=can_take and is_entitled and not is_in_band and "reclaim" in settings.stages,
        can_preempt=can_take and "preempt" in settings.stages,
    )


def _kept(queue: Queue, r: int, path: Sequence[Queue]) -> int:
    """What reclaim leaves to the queue in its first tier."""
    keep = queue.share_to_keep[r]
    return max(keep, queue.quota[r]) if queue is path[-1] else keep


def _owed(queue: Queue, r: int, path: Sequence[Queue]) -> int:
    """What it leaves to the queue for a workload within quota."""
    quota = queue.quota[r]
    return quota if queue is path[-1] else min(queue.share_to_keep[r], quota)
