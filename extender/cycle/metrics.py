"""The controller's metrics, named as in kube-scheduler where the meaning is the same."""

from typing import Final

from prometheus_client import REGISTRY, Counter, Gauge, Histogram

from extender.cycle.pool_metrics import PoolMetrics
from extender.cycle.queue_metrics import QueueMetrics
from extender.cycle.replica_metrics import ReplicaMetrics

CYCLES = Counter(
    "ballast_control_cycles",
    "Cycles that ended, by result; `unchanged`: repaired and reported, without a new decision.",
    ["result"],
)
CYCLE_SECONDS = Histogram(
    "ballast_control_cycle_duration_seconds",
    "Time of one cycle, by part.",
    ["part"],
    buckets=[0.001 * 2**n for n in range(15)],
)
STAGE_SECONDS = Histogram(
    "ballast_control_stage_duration_seconds",
    "Time of one stage of deciding; `prepare` is the work before the first stage.",
    ["stage"],
    buckets=[0.001 * 2**n for n in range(15)],
)
CUT_WORKLOADS = Gauge(
    "ballast_control_cut_workloads", "Workloads that the last cycle had no time to consider."
)
CUT_STAGES = Counter(
    "ballast_control_cut_stages", "Times that a stage used up the cycle's budget.", ["stage"]
)
RELEASED = Counter(
    "ballast_control_released_pods", "Pods whose gate was removed, by result.", ["result"]
)
EVICTED = Counter(
    "ballast_control_evicted_pods",
    "Pods evicted, by reason, by the pod's project, and by the project that they were evicted for.",
    ["reason", "project", "beneficiary"],
)
LOST = Counter(
    "ballast_control_lost_gpu_seconds",
    "GPUs of evicted pods times the seconds since their last checkpoint, and for a restart.",
    ["project"],
)
POD_WAITS = Histogram(
    "ballast_control_pod_wait_seconds",
    "Seconds from a pod's creation to its place, by project; once per place.",
    ["project"],
    buckets=[1, 10, 60, 300, 900, 3_600, 14_400, 43_200, 86_400],
)
EVICTION_REFUSALS = Counter(
    "ballast_control_eviction_refusals", "Evictions that a disruption budget refused."
)
EVICTION_FAILURES = Counter(
    "ballast_control_eviction_failures", "Evictions that ended in an unexpected error."
)
BUDGETS_OVERRULED = Counter(
    "ballast_control_overruled_budgets",
    "Pods deleted because a disruption budget held them back beyond its deadline.",
)
USELESS_EVICTIONS = Counter(
    "ballast_control_useless_evictions",
    "Evictions whose beneficiary ended before it ran, or did not run within 600 s.",
)
SETTLED_EVICTIONS = Counter(
    "ballast_control_settled_evictions",
    "Evicted pods by their project, the project that they were evicted for, and whether that work"
    " ran.",
    ["project", "beneficiary", "ran"],
)
SCHEDULER_AWAY = Gauge(
    "ballast_control_scheduler_away",
    "1 while kube-scheduler answers for no released pod.",
)
PROVISIONING = Gauge(
    "ballast_control_provisioning_requests",
    "ProvisioningRequests for workloads that lack nodes, by their newest condition.",
    ["state"],
)
REVOKED = Counter("ballast_control_revoked_rows", "Rows taken back from unbound pods.")
FOREIGN_GPUS = Gauge(
    "ballast_control_foreign_gpus",
    "GPUs that pods hold without a row in the ledger; `managed` is whether a project lists the"
    " pod's namespace.",
    ["managed"],
)
PENDING = Gauge("ballast_control_pending_workloads", "Pending workloads, by reason.", ["reason"])
CACHE_SIZE = Gauge("ballast_control_cache_size", "Objects in the model.", ["type"])
IS_LEADER = Gauge("ballast_control_is_leader", "1 while this replica decides.")
QUEUES: Final = QueueMetrics()
REGISTRY.register(QUEUES)
POOLS: Final = PoolMetrics()
REGISTRY.register(POOLS)
REPLICAS: Final = ReplicaMetrics()
REGISTRY.register(REPLICAS)


def forget_project(name: str) -> None:
    """Remove the series of a deleted project: they would stay until the process ends, and evictions
    have one for each pair of projects."""
    for metric in (EVICTED, LOST, POD_WAITS, SETTLED_EVICTIONS):
        metric.remove_by_labels({"project": name})
    for metric in (EVICTED, SETTLED_EVICTIONS):
        metric.remove_by_labels({"beneficiary": name})


def end_term() -> None:
    """Clear what only a leader knows, because a former leader would repeat it for ever."""
    IS_LEADER.set(0)
    CUT_WORKLOADS.set(0)
    SCHEDULER_AWAY.set(0)
    FOREIGN_GPUS.clear()
    PENDING.clear()
    PROVISIONING.clear()
    QUEUES.clear()
    POOLS.clear()
    REPLICAS.clear()
