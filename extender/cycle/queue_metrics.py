"""Metrics of every queue and node pool for Prometheus, built from the last plan at each scrape.

A queue is a project, or `department/<name>`. GPUs are summed over cards; half a card is 0.5.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from extender.api.months import PER_GPU_HOUR
from extender.api.units import MILLI_PER_GPU
from extender.policy.plan import Plan, QueueShare
from extender.state.model import GPU, UNLIMITED
from extender.state.snapshot import Snapshot

#: (queue, node pool)
_Key = tuple[str, str]

_LABELS: Final = ("queue", "node_pool")
#: A quota, limit or budget that is not set has no sample; neither has use that is unknown.
_GAUGES: Final[Mapping[str, str]] = {
    "ballast_queue_quota_gpus": "Quota of the queue.",
    "ballast_queue_limit_gpus": "Limit of the queue.",
    "ballast_queue_fair_share_gpus": "Fair share of the queue now, over-quota share included.",
    "ballast_queue_requested_gpus": "GPUs that the queue's live pods hold or request.",
    "ballast_queue_owed_gpus": "The smaller of fair share and request.",
    "ballast_queue_held_gpus": "GPUs that reserved and bound pods of the queue hold.",
    "ballast_queue_borrowed_gpus": "GPUs that the queue holds above its quota.",
    "ballast_queue_non_preemptible_gpus": "GPUs that the queue's non-preemptible pods hold.",
    "ballast_queue_month_budget_gpu_hours": "GPU-hours that the project may use in a month.",
    "ballast_queue_month_used_gpu_hours": "GPU-hours that the project has used this month.",
}
#: Sums over time, since this replica began to lead.
_SUMS: Final[Mapping[str, str]] = {
    "ballast_queue_deprived_gpu_seconds": "GPU-seconds by which the queue held less than it was"
    " owed.",
    "ballast_queue_in_quota_gpu_seconds": "GPU-seconds that the queue held within its quota.",
    "ballast_queue_over_quota_gpu_seconds": "GPU-seconds that the queue held above its quota.",
}
#: In the order of `_SUMS`.
_Rates = tuple[int, int, int]


class QueueMetrics(Collector):
    """Metrics of queues, from the leader's last decision; empty on other replicas.

    A scrape costs the queues that have a quota, or hold or request GPUs. It may run in another
    thread, so stored values are replaced and never changed.
    """

    def __init__(self) -> None:
        self._shares: dict[_Key, QueueShare] = {}
        self._waits: Counter[tuple[str, str]] = Counter()
        self._milli_s: dict[_Key, _Rates] = {}
        self._looked_at_s = 0

    def look(self, plan: Plan, snapshot: Snapshot) -> None:
        """Store the plan's figures, and add what queues held and lacked since the last call."""
        elapsed_s = max(0, snapshot.now_s - self._looked_at_s) if self._shares else 0
        added = {key: _rates(share) for key, share in self._shares.items()}
        self._looked_at_s = snapshot.now_s
        self._shares = {
            key: share
            for key, share in plan.shares.items()
            if key[0] in snapshot.queues
            and (share.quota[GPU] or share.requested[GPU] or share.allocated[GPU] or share.month)
        }
        before = self._milli_s
        self._milli_s = {
            key: _advanced(before.get(key, (0, 0, 0)), added.get(key, (0, 0, 0)), elapsed_s)
            for key in self._shares
        }
        self._waits = Counter(
            (workload.project, refused.reason)
            for name, refused in plan.waits.items()
            if (workload := snapshot.workloads.get(name)) is not None
        )

    def clear(self) -> None:
        """Forget everything: this replica no longer leads."""
        self._shares, self._waits, self._milli_s = {}, Counter(), {}

    def collect(self) -> Iterable[Metric]:
        """All families; the Prometheus client calls it at each scrape."""
        families = {
            name: GaugeMetricFamily(name, text, labels=_LABELS) for name, text in _GAUGES.items()
        }
        for key, share in self._shares.items():
            for name, milli in _figures(share):
                families[name].add_metric(key, milli / MILLI_PER_GPU)
            for name, milli_s in _months(share, self._looked_at_s):
                families[name].add_metric(key, milli_s / PER_GPU_HOUR)
        yield from families.values()
        for at, (name, text) in enumerate(_SUMS.items()):
            family = CounterMetricFamily(name, text, labels=_LABELS)
            for key, sums in self._milli_s.items():
                family.add_metric(key, sums[at] / MILLI_PER_GPU)
            yield family
        waits = GaugeMetricFamily(
            "ballast_queue_pending_workloads",
            "Pending workloads of the project, by reason.",
            labels=("queue", "reason"),
        )
        for labels, count in self._waits.items():
            waits.add_metric(labels, count)
        yield waits


def _figures(share: QueueShare) -> Iterator[tuple[str, int]]:
    """The milli-GPU of each gauge that has a sample."""
    quota, limit, held = share.quota[GPU], share.limit[GPU], share.allocated[GPU]
    if quota < UNLIMITED:
        yield "ballast_queue_quota_gpus", quota
    if limit < UNLIMITED:
        yield "ballast_queue_limit_gpus", limit
    yield "ballast_queue_fair_share_gpus", share.fair_share[GPU]
    yield "ballast_queue_requested_gpus", share.requested[GPU]
    yield "ballast_queue_owed_gpus", share.owed_milli
    yield "ballast_queue_held_gpus", held
    yield "ballast_queue_borrowed_gpus", share.borrowed_milli
    yield "ballast_queue_non_preemptible_gpus", share.allocated_non_preemptible[GPU]


def _months(share: QueueShare, now_s: int) -> Iterator[tuple[str, int]]:
    """The milli-GPU-seconds of each budget gauge that has a sample."""
    if share.month is not None:
        yield "ballast_queue_month_budget_gpu_hours", share.month.budget
        if share.month.is_known_at(now_s):
            yield "ballast_queue_month_used_gpu_hours", share.month.used


def _rates(share: QueueShare) -> _Rates:
    """What each second adds to `_SUMS`."""
    held, quota = share.allocated[GPU], share.quota[GPU]
    return max(0, share.owed_milli - held), min(held, quota), share.borrowed_milli


def _advanced(sums: _Rates, rates: _Rates, elapsed_s: int) -> _Rates:
    deprived, in_quota, over = (
        so_far + rate * elapsed_s for so_far, rate in zip(sums, rates, strict=True)
    )
    return deprived, in_quota, over
