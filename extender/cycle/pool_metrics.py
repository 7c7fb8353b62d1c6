"""Metrics of every node pool for Prometheus, and the sums over its cards."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from extender.api.units import MILLI_PER_GPU
from extender.policy.plan import Plan, QueueShare
from extender.state.model import GPU, department_of
from extender.state.snapshot import Snapshot

_LABELS: Final = ("node_pool",)


@dataclass(slots=True)
class PoolSums:
    """Nodes of a pool, and milli-GPU of their healthy cards.

    `free_whole` is free on unused cards, `free_pieces` is free on partly used ones. `largest` is
    the capacity of the node with the most cards, `largest_mib` the largest memory of a card.
    """

    nodes: int = 0
    capacity: int = 0
    largest: int = 0
    largest_mib: int = 0
    free_whole: int = 0
    free_pieces: int = 0

    @property
    def free(self) -> int:
        """All free milli-GPU."""
        return self.free_whole + self.free_pieces

    @property
    def held(self) -> int:
        """Milli-GPU that pods hold or have reserved."""
        return self.capacity - self.free


def pool_sums(snapshot: Snapshot) -> dict[str, PoolSums]:
    """Capacity, use and fragments of every node pool; O(cards)."""
    sums = {name: PoolSums() for name in snapshot.pools}
    table = snapshot.nodes
    cards = table.cards
    for ix in cards.ix.values():
        total = sums.setdefault(table.pool[ix], PoolSums())
        total.nodes += 1
        total.capacity += cards.capacity_milli[ix]
        total.largest = max(total.largest, cards.capacity_milli[ix])
        total.largest_mib = max(total.largest_mib, cards.card_mib[ix])
        for milli in cards.free_of(ix):
            if milli >= MILLI_PER_GPU:
                total.free_whole += milli
            elif milli > 0:
                total.free_pieces += milli
    return sums


class PoolMetrics(Collector):
    """Metrics of node pools, from the leader's last decision; empty on other replicas."""

    def __init__(self) -> None:
        self._sums: Mapping[str, PoolSums] = {}
        self._fairness: Mapping[str, float] = {}
        self._idle: dict[str, int] = {}
        self._idle_milli_s: dict[str, int] = {}
        self._looked_at_s = 0

    def look(self, plan: Plan, snapshot: Snapshot, sums: Mapping[str, PoolSums]) -> None:
        """Store the current figures, and add the idle time since the last call."""
        elapsed_s = max(0, snapshot.now_s - self._looked_at_s) if self._sums else 0
        before = self._idle_milli_s
        self._idle_milli_s = {
            pool: before.get(pool, 0) + self._idle.get(pool, 0) * elapsed_s for pool in sums
        }
        by_pool: dict[str, list[QueueShare]] = {}
        for (queue, pool), share in plan.shares.items():
            # Departments hold what their projects hold; a user's part is in its project's.
            if queue in snapshot.queues and not department_of(queue):
                by_pool.setdefault(pool, []).append(share)
        self._sums, self._looked_at_s = sums, snapshot.now_s
        self._idle = {pool: _idle(of.free, by_pool.get(pool, ())) for pool, of in sums.items()}
        self._fairness = {pool: fairness_index(shares) for pool, shares in by_pool.items()}

    def clear(self) -> None:
        """Forget everything: this replica no longer leads."""
        self._sums, self._fairness, self._idle, self._idle_milli_s = {}, {}, {}, {}

    def collect(self) -> Iterable[Metric]:
        """All families; the Prometheus client calls it at each scrape."""
        gpus = GaugeMetricFamily(
            "ballast_pool_gpus",
            "GPUs of the node pool's healthy cards; free_pieces are on cards that are partly used.",
            labels=("node_pool", "state"),
        )
        for pool, sums in self._sums.items():
            for state in ("held", "free_whole", "free_pieces"):
                gpus.add_metric((pool, state), getattr(sums, state) / MILLI_PER_GPU)
        yield gpus
        idle = CounterMetricFamily(
            "ballast_pool_idle_while_waiting_gpu_seconds",
            "GPUs that were free, as far as projects requested more than they held, times"
            " seconds, since this replica leads.",
            labels=_LABELS,
        )
        for pool, milli_s in self._idle_milli_s.items():
            idle.add_metric((pool,), milli_s / MILLI_PER_GPU)
        yield idle
        fairness = GaugeMetricFamily(
            "ballast_pool_fairness_index",
            "Jain's index of held to owed GPUs over projects: 1 if the ratio is the same for all,"
            " 1/n where one of n has all.",
            labels=_LABELS,
        )
        for pool, index in self._fairness.items():
            fairness.add_metric((pool,), index)
        yield fairness


def fairness_index(shares: Iterable[QueueShare]) -> float:
    """Jain's index over the queues with an owed amount; 1 if there is none.

    Jain, Chiu, Hawe: A Quantitative Measure of Fairness, DEC TR-301, 1984. What a queue holds above
    its owed amount does not count.
    """
    parts = []
    for share in shares:
        if (owed := share.owed_milli) > 0:
            parts.append(min(share.allocated[GPU], owed) / owed)
    squares = sum(part * part for part in parts)
    return sum(parts) ** 2 / (len(parts) * squares) if squares else 1.0


def _idle(free: int, shares: Iterable[QueueShare]) -> int:
    """Milli-GPU that are free although the queues request them."""
    return min(free, sum(each.waiting_milli for each in shares))
