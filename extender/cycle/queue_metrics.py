"""Figures of every queue and node pool for Prometheus, made of the last plan at each scrape.

A queue is a project, or `department/<name>`. GPUs are summed over cards, halves of a card as 0.5.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from extender.api.units import MILLI_PER_GPU
from extender.policy.plan import Plan, QueueShare
from extender.state.model import GPU, UNLIMITED
from extender.state.snapshot import Snapshot

#: (queue, node pool)
_Key = tuple[str, str]

_LABELS: Final = ("queue", "node_pool")
#: A quota or limit that is not stated has no sample.
_GAUGES: Final[Mapping[str, str]] = {
    "ballast_queue_quota_gpus": "GPUs that the queue may always have.",
    "ballast_queue_limit_gpus": "GPUs that the queue may have at most.",
    "ballast_queue_fair_share_gpus": "GPUs that are the queue's part now, over-quota use included.",
    "ballast_queue_requested_gpus": "GPUs that the queue's live pods hold or ask for.",
    "ballast_queue_owed_gpus": "The smaller of fair share and request.",
    "ballast_queue_held_gpus": "GPUs that reserved and bound pods of the queue hold.",
    "ballast_queue_borrowed_gpus": "GPUs that the queue holds above its quota.",
}


class QueueMetrics(Collector):
    """What queues have and lack, as the leader saw it last; empty elsewhere.

    A scrape costs the queues that have a quota, hold or ask for GPUs, and may come from another
    thread: what a look has made is not changed any more.
    """

    def __init__(self) -> None:
        self._shares: dict[_Key, QueueShare] = {}
        self._waits: Counter[tuple[str, str]] = Counter()
        self._deprived_milli_s: dict[_Key, int] = {}
        self._looked_at_s = 0

    def look(self, plan: Plan, snapshot: Snapshot) -> None:
        """Take the figures of the plan, and count what queues were deprived of since the last."""
        elapsed_s = max(0, snapshot.now_s - self._looked_at_s) if self._shares else 0
        lacked = {key: _lacks(share) * elapsed_s for key, share in self._shares.items()}
        self._looked_at_s = snapshot.now_s
        self._shares = {
            key: share
            for key, share in plan.shares.items()
            if key[0] in snapshot.queues
            and (share.quota[GPU] or share.requested[GPU] or share.allocated[GPU])
        }
        before = self._deprived_milli_s
        self._deprived_milli_s = {
            key: before.get(key, 0) + lacked.get(key, 0) for key in self._shares
        }
        self._waits = Counter(
            (workload.project, refused.reason)
            for name, refused in plan.waits.items()
            if (workload := snapshot.workloads.get(name)) is not None
        )

    def clear(self) -> None:
        """Forget everything: this replica leads no more."""
        self._shares, self._waits, self._deprived_milli_s = {}, Counter(), {}

    def collect(self) -> Iterable[Metric]:
        """All families; called by Prometheus' client at each scrape."""
        families = {
            name: GaugeMetricFamily(name, text, labels=_LABELS) for name, text in _GAUGES.items()
        }
        for key, share in self._shares.items():
            for name, milli in _figures(share):
                families[name].add_metric(key, milli / MILLI_PER_GPU)
        yield from families.values()
        deprived = CounterMetricFamily(
            "ballast_queue_deprived_gpu_seconds",
            "GPU-seconds that the queue held less than it was owed, since this replica leads.",
            labels=_LABELS,
        )
        for key, milli_s in self._deprived_milli_s.items():
            deprived.add_metric(key, milli_s / MILLI_PER_GPU)
        yield deprived
        waits = GaugeMetricFamily(
            "ballast_queue_pending_workloads",
            "Workloads of the project that wait, by reason.",
            labels=("queue", "reason"),
        )
        for labels, count in self._waits.items():
            waits.add_metric(labels, count)
        yield waits


def _figures(share: QueueShare) -> Iterator[tuple[str, int]]:
    """The milli-GPUs of each gauge that has a sample."""
    quota, limit, held = share.quota[GPU], share.limit[GPU], share.allocated[GPU]
    if quota < UNLIMITED:
        yield "ballast_queue_quota_gpus", quota
    if limit < UNLIMITED:
        yield "ballast_queue_limit_gpus", limit
    yield "ballast_queue_fair_share_gpus", share.fair_share[GPU]
    yield "ballast_queue_requested_gpus", share.requested[GPU]
    yield "ballast_queue_owed_gpus", _owed(share)
    yield "ballast_queue_held_gpus", held
    yield "ballast_queue_borrowed_gpus", max(0, held - quota)


def _owed(share: QueueShare) -> int:
    return min(share.fair_share[GPU], share.requested[GPU])


def _lacks(share: QueueShare) -> int:
    return max(0, _owed(share) - share.allocated[GPU])
