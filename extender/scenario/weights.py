"""Over-quota weights of queues as integers: stated ones, and defaults.

A department's default weight is its quota, a project's is 1. If `overQuotaWeights` is off, every
queue's weight is its quota, as in a cluster's node pool with weights disabled.
"""

from collections.abc import Callable
from dataclasses import dataclass

from msgspec import UNSET

from extender.api.months import PER_GPU_HOUR
from extender.scenario import amounts
from extender.scenario.model.case import Case
from extender.scenario.model.queues import Figures, Queue, QueuePool
from extender.scenario.model.values import Amount, Limit
from extender.state.model import GPU, UNLIMITED, MonthHours

_GIB = 1 << 30


@dataclass(slots=True, frozen=True)
class Weights:
    """Converts the weights of one case. `one` is weight 1 by resource, in the same integers as
    quotas that are weights; in this scale all weights of the case are whole."""

    case: Case
    one: tuple[int, int, int]
    scale: tuple[int, int, int]
    parents: frozenset[str]

    @classmethod
    def of(cls, case: Case, memory: Callable[[Amount], int]) -> "Weights":
        """The weights of the case; `memory` converts amounts of memory to its unit."""
        parents = frozenset(queue.parent for queue in case.queues if queue.parent)
        quotas_count = not case.settings.over_quota_weights or bool(parents)
        one = (1000, 1000, memory(_GIB)) if quotas_count else (1, 1, 1)
        gpu, cpu, mem = (amounts.scale_of(_stated(case, at)) for at in range(3))
        return cls(case, one, (gpu, cpu, mem), parents)

    def weight(self, queue: Queue, at: int, figures: Figures, quota: int) -> int:
        """The queue's weight for one resource, given its quota of that resource as an integer."""
        if not self._is_by_quota(queue, figures):
            stated = 1 if figures.weight is UNSET else figures.weight
            return int(amounts.fraction(stated) * self.scale[at]) * self.one[at]
        if 0 < quota < UNLIMITED:
            return quota * self.scale[at]
        is_on = self.case.settings.over_quota_weights
        return self.scale[at] * (self.one[at] if is_on else 1)

    def is_behind(self, queue: Queue, pool: str) -> bool:
        """Whether the department has no GPU quota while a sibling has one: it gets what is left."""
        if queue.name not in self.parents or not self._is_by_quota(
            queue, figures_of(queue, GPU, pool)
        ):
            return False
        beside = [each for each in self.case.queues if each.parent == queue.parent]
        quotas = {each.name: quota_of(figures_of(each, GPU, pool), GPU) for each in beside}
        return not _has_any(quotas[queue.name]) and any(map(_has_any, quotas.values()))

    def _is_by_quota(self, queue: Queue, figures: Figures) -> bool:
        is_stated = figures.weight is not UNSET
        is_on = self.case.settings.over_quota_weights
        return not is_on or (queue.name in self.parents and not is_stated)


def figures_of(queue: Queue, at: int, pool: str) -> Figures:
    """The queue's figures of one resource in a node pool: those for the pool, else its own."""
    given = queue.pools.get(pool, QueuePool())
    of_pool, own = (
        (each.gpu, each.cpu, each.memory)[at]
        for each in (given, QueuePool(gpu=queue.gpu, cpu=queue.cpu, memory=queue.memory))
    )
    return Figures(
        quota=own.quota if of_pool.quota is UNSET else of_pool.quota,
        limit=own.limit if of_pool.limit is UNSET else of_pool.limit,
        weight=own.weight if of_pool.weight is UNSET else of_pool.weight,
    )


def month_of_queue(queue: Queue, pool: str) -> MonthHours | None:
    """The queue's budget in a node pool: the one given for the pool, else its own."""
    given = queue.pools.get(pool, QueuePool()).gpu
    figures = queue.gpu if given.gpu_hours_per_month is None else given
    if figures.gpu_hours_per_month is None:
        return None
    used = amounts.fraction(figures.gpu_hours_used) * PER_GPU_HOUR
    return MonthHours(figures.gpu_hours_per_month * PER_GPU_HOUR, int(used))


def quota_of(figures: Figures, at: int) -> Limit:
    """The quota of one resource: by default no GPUs, and unlimited CPU and memory."""
    if figures.quota is UNSET:
        return 0 if at == GPU else None
    return figures.quota


def _has_any(quota: Limit) -> bool:
    return quota is None or amounts.fraction(quota) > 0


def _stated(case: Case, at: int) -> list[Amount]:
    found = []
    for queue in case.queues:
        own = QueuePool(gpu=queue.gpu, cpu=queue.cpu, memory=queue.memory)
        for of in (own, *queue.pools.values()):
            weight = (of.gpu, of.cpu, of.memory)[at].weight
            if weight is not UNSET:
                found.append(weight)
    return found
