"""Whether a blocked workload could take cards back from another one, by reclaim or preemption.

The answer is an estimate from the queues alone, for the time at which the blocked workload could
start. In doubt the answer is no, so that the cards are kept for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from extender.policy.plan import Settings
from extender.policy.queues.common_ancestor import compared, levels_of
from extender.policy.queues.min_runtime import preempt_minimum_s, reclaim_minimum_s
from extender.policy.queues.queue import RESOURCES, Queue, add, subtract
from extender.policy.workloads.first_kinds import FirstKinds
from extender.policy.workloads.pending import Pending
from extender.state.model import GPU, Amounts, PodView, PoolView, WorkloadView
from extender.state.tally import held_amounts


@dataclass(slots=True, frozen=True)
class TakeBack:
    """What the blocked `workload` of queue `leaf`, which needs `need`, could take.

    Once it starts, its queues are within their limits (`is_allowed`), within what they deserve
    (the lowest `n_entitled` of its chain), and within their quotas (`is_in_quota`). `can_reclaim`
    and `can_preempt` say which stages apply to it. `freed` is what leaves its queues before.
    `is_first`: it precedes training (see `first_kinds`).
    """

    workload: WorkloadView
    leaf: Queue
    need: Amounts
    is_allowed: bool
    n_entitled: int
    is_in_quota: bool
    can_reclaim: bool
    can_preempt: bool
    freed: Mapping[Queue, Sequence[int]]
    is_first: bool
    firsts: FirstKinds

    @classmethod
    def of(
        cls,
        pending: Pending,
        leaf: Queue,
        gone: Sequence[tuple[Queue, PodView]],
        view: PoolView,
        settings: Settings,
        firsts: FirstKinds,
    ) -> "TakeBack":
        """What the workload could take once the pods in `gone` no longer count in their queues."""
        workload, need, project = pending.workload, pending.need(), leaf.project
        freed = _freed(leaf, gone)
        held = {queue: _held_then(queue, need, freed[queue]) for queue in leaf.chain}
        is_np_allowed = workload.is_preemptible or leaf.may_hold_np(need)
        n_entitled = sum(
            1 for _ in takewhile(lambda q: _is_within(held[q], q.deserves), leaf.chain)
        )
        # Within the reclaim band, a project that already holds its quota reclaims nothing.
        before = held[project][GPU] - need[GPU]
        is_in_band = view.reclaim_band_percent > 0 and before >= project.quota[GPU]
        can_take = view.has_preemption and workload.doubt is None and not workload.never_preempts
        return cls(
            workload,
            leaf,
            need,
            is_allowed=is_np_allowed and all(_is_within(held[q], q.limit) for q in leaf.chain),
            n_entitled=n_entitled,
            is_in_quota=all(_is_within(held[queue], queue.quota) for queue in leaf.chain),
            can_reclaim=can_take and not is_in_band and "reclaim" in settings.stages,
            can_preempt=can_take and "preempt" in settings.stages,
            freed=freed,
            is_first=firsts.is_first(workload, project),
            firsts=firsts,
        )

    @property
    def is_entitled(self) -> bool:
        """Whether all its queues are within what they deserve once it starts."""
        return self.n_entitled == len(self.leaf.chain)

    def could_take(self, leaf: Queue, other: WorkloadView, amounts: Amounts, after_s: int) -> bool:
        """Whether it could take cards back in `after_s` seconds if `other` of queue `leaf` started
        on them now. `amounts` are not yet in the queue's allocation."""
        if preempt_minimum_s(leaf) <= after_s and self.could_preempt(leaf, other):
            return True
        reclaim_s = reclaim_minimum_s(leaf, levels_of(self.leaf))
        is_old = reclaim_s <= after_s and other.is_preemptible
        return is_old and self.could_reclaim(leaf, amounts)

    def could_take_running(self, leaf: Queue, other: WorkloadView) -> bool:
        """Whether it could take cards that `other` holds, once its minimum run time is over."""
        return other.is_preemptible and (
            self.could_preempt(leaf, other) or self.could_reclaim(leaf)
        )

    def leaves_room(self, leaf: Queue, amounts: Amounts, *, counts_freed: bool) -> bool:
        """Whether its project and its user would still deserve `need` if a workload of queue `leaf`
        ran that needs `amounts`; if `counts_freed`, once `freed` has left."""
        own = self.leaf.chain[: self.leaf.chain.index(self.leaf.project) + 1]
        return all(
            queue.allocated[r] - self.freed[queue][r] * counts_freed + amounts[r] + self.need[r]
            <= queue.deserves[r]
            for queue in own
            if queue in leaf.chain
            for r in RESOURCES
            if amounts[r]
        )

    def could_reclaim(self, leaf: Queue, more: Amounts = (0, 0, 0)) -> bool:
        """Whether stage `reclaim` takes from queue `leaf` once its allocation has grown by `more`.

        For a workload within quota, the queue at the level of comparison must be above its quota;
        otherwise it must also be above its share. Each queue below must be above its kept share.
        """
        path, level = compared(leaf, levels_of(self.leaf))
        # Queues above the compared ones lose what they gain.
        if not self.can_reclaim or not path or level >= self.n_entitled:
            return False
        *inner, top = path
        return any(
            top.allocated[r] + more[r] > max(top.quota[r], self._kept_share(top, r))
            and all(queue.allocated[r] + more[r] > self._kept_share(queue, r) for queue in inner)
            for r in [r for r in RESOURCES if more[r]] or RESOURCES
        )

    def _kept_share(self, queue: Queue, resource: int) -> int:
        """The share that reclaim leaves to the queue; capped by its quota for work in quota."""
        keep = queue.share_to_keep[resource]
        return min(keep, queue.quota[resource]) if self.is_in_quota else keep

    def could_preempt(self, leaf: Queue, other: WorkloadView) -> bool:
        """Whether preemption evicts `other` for it, once its minimum run time is over."""
        return self.can_preempt and other.is_preemptible and self.precedes(leaf, other)

    def precedes(self, leaf: Queue, other: WorkloadView) -> bool:
        """Whether it precedes `other` in the same project, by kind within quota or by priority."""
        if leaf.project is not self.leaf.project:
            return False
        is_lower = other.priority < self.workload.priority
        if is_lower is self.is_first:
            return is_lower
        return not self.firsts.is_first(other, leaf.project)


def _freed(leaf: Queue, gone: Sequence[tuple[Queue, PodView]]) -> dict[Queue, list[int]]:
    """What these pods, each with its queue, hold of each queue of the leaf's chain."""
    freed: dict[Queue, list[int]] = {queue: [0, 0, 0] for queue in leaf.chain}
    for other, pod in gone:
        for queue in other.chain:
            if queue in freed:
                add(freed[queue], held_amounts(pod, 0))
    return freed


def _held_then(queue: Queue, need: Amounts, freed: Sequence[int]) -> list[int]:
    """What the queue holds once `need` has started in it and `freed` has left it."""
    held = queue.allocated[:]
    add(held, need)
    subtract(held, freed)
    return held


def _is_within(held: Sequence[int], bound: Sequence[int]) -> bool:
    return held[0] <= bound[0] and held[1] <= bound[1] and held[2] <= bound[2]
