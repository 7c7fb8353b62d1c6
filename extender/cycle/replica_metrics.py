"""Metrics of replicas of owners that state a floor, by which autoscalers are limited."""

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from extender.policy.plan import Plan
from extender.policy.queues.tree import tally_of
from extender.policy.workloads.floors import runs
from extender.state.model import WorkloadView
from extender.state.snapshot import Snapshot

_State = Literal["kept", "surge", "waiting", ""]


class ReplicaMetrics(Collector):
    """Replicas of each owner by state, from the leader's last decision; empty elsewhere."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, _State]] = Counter()

    def look(self, plan: Plan, snapshot: Snapshot) -> None:
        """Count the replicas in the snapshot; costs their number."""
        counts: Counter[tuple[str, _State]] = Counter()
        for key in tally_of(snapshot).replicas:
            workload = snapshot.workloads[key]
            assert workload.replica is not None
            # One label with both: Prometheus sets `namespace` to that of the scraped pod.
            owner = f"{workload.namespace}/{workload.replica.owner}"
            # An owner with replicas has a sample of each state, even if 0.
            counts.update({(owner, state): 0 for state in ("kept", "surge", "waiting")})
            if state := _state_of(workload, plan):
                counts[owner, state] += 1
        self._counts = counts

    def clear(self) -> None:
        """Forget everything: this replica no longer leads."""
        self._counts = Counter()

    def collect(self) -> Iterable[Metric]:
        """The one family; the Prometheus client calls it at each scrape."""
        family = GaugeMetricFamily(
            "ballast_replicas",
            "Replicas of owners that state a floor: kept and surge have a place.",
            labels=("owner", "state"),
        )
        for labels, count in self._counts.items():
            family.add_metric(labels, count)
        yield family


def _state_of(workload: WorkloadView, plan: Plan) -> _State:
    """Whether the replica is kept, surge or waiting; empty if all its pods are terminating."""
    if runs(workload):
        return "kept" if workload.key in plan.kept else "surge"
    return "" if all(pod.is_terminating for pod in workload.pods) else "waiting"
