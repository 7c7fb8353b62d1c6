"""Past use of queues, for their weights in a run in which time passes.

If any queue of the file states its past use, that is its part of an endless past, which fades with
new allocations. If none does, the past begins with the file, as on a new cluster.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from extender.policy.queues.usage import advance, as_ppm
from extender.scenario.cluster import Cluster
from extender.state.model import NOTHING, Amounts, QueueView

_PPM: Final = 1_000_000
#: Half-lives after which an account has converged.
_ENDLESS: Final = 128

#: (queue, node pool)
_Key = tuple[str, str]


@dataclass(slots=True)
class UsageAccounts:
    """Accounts of queues, and of each node pool's capacity, in amounts times seconds."""

    half_life_s: int
    is_counted: bool
    capacity: dict[str, Amounts]
    _used: dict[_Key, Amounts] = field(default_factory=dict)
    _had: dict[str, Amounts] = field(default_factory=dict)
    _is_fresh: bool = True

    @classmethod
    def of(cls, cluster: Cluster) -> "UsageAccounts":
        """The accounts at the start of the file."""
        settings = cluster.case.settings
        past = cls(
            half_life_s=int(settings.usage_half_life),
            is_counted=settings.usage_weight not in (0, "0"),
            capacity=cluster.free.ready_capacity(cluster.pools),
        )
        stated = {
            (queue.name, pool): tuple(figures.usage_ppm for figures in quota.figures)
            for queue in cluster.queue_views.values()
            for pool, quota in queue.pools.items()
        }
        if any(map(any, stated.values())):
            past._had = {
                pool: advance(NOTHING, amounts, _ENDLESS * past.half_life_s, past.half_life_s)
                for pool, amounts in past.capacity.items()
            }
            for key, parts in stated.items():
                gpu, cpu, memory = (
                    had * ppm // _PPM for had, ppm in zip(past._had[key[1]], parts, strict=True)
                )
                past._used[key] = gpu, cpu, memory
        return past

    def add(self, held: Mapping[tuple[str, str, int], int], seconds: int) -> None:
        """Add allocations, by queue, node pool and resource, over `seconds`."""
        self._is_fresh = False
        for pool, amounts in self.capacity.items():
            had = self._had.get(pool, NOTHING)
            self._had[pool] = advance(had, amounts, seconds, self.half_life_s)
        for queue, pool in self._used.keys() | {(key[0], key[1]) for key in held}:
            gpu, cpu, memory = (held.get((queue, pool, at), 0) for at in range(3))
            used = self._used.get((queue, pool), NOTHING)
            self._used[queue, pool] = advance(used, (gpu, cpu, memory), seconds, self.half_life_s)

    def views(self, queues: dict[str, QueueView]) -> dict[str, QueueView]:
        """The queues with their use up to now."""
        if self._is_fresh:
            return queues
        return {name: self._with_past(view) for name, view in queues.items()}

    def _with_past(self, view: QueueView) -> QueueView:
        pools = {}
        for pool, quota in view.pools.items():
            parts = as_ppm(self._used.get((view.name, pool), NOTHING), self._had[pool])
            gpu, cpu, memory = (
                replace(figures, usage_ppm=ppm)
                for figures, ppm in zip(quota.figures, parts, strict=True)
            )
            pools[pool] = replace(quota, gpu=gpu, cpu=cpu, memory=memory)
        return replace(view, pools=pools)
