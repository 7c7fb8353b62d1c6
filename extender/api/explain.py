"""Descriptions that `kubectl explain` shows for fields that only programs write.

Fields that users write are described where they are declared (`extender.api.kinds`).
"""

from collections.abc import Mapping
from typing import Final

_GPUS: Final = "as a number of GPUs"
_AMOUNTS: Final = "Milli-GPU-seconds (thousandths of a GPU times seconds)"
_GENERATION: Final = "metadata.generation of the object when the status was written."

#: Struct -> name of the field in YAML -> description.
TEXTS: Final[Mapping[str, Mapping[str, str]]] = {
    "CardShare": {
        "index": "Index of the card on its node.",
        "milli": "Thousandths of the card that the pod holds; 1000 is the whole card.",
        "memoryMiB": "MiB of the card's memory that the pod holds.",
    },
    "Condition": {
        "type": "Type of the condition, in CamelCase.",
        "status": "True, False or Unknown.",
        "reason": "Reason for the status, from the closed list in docs/reasons.md.",
        "message": "Details of the reason, with names and figures.",
        "observedGeneration": "metadata.generation for which the condition was set.",
        "lastTransitionTime": "Time when the status last changed.",
    },
    "Device": {
        "index": "Index of the card on its node.",
        "memoryMiB": "MiB of memory of the card.",
        "uuid": "UUID of the card, as the driver reports it.",
        "model": "Model of the card, as GPU feature discovery or the driver reports it.",
        "health": "Healthy or Unhealthy; an unhealthy card is not allocated to new pods.",
    },
    "ForeignHold": {
        "uid": "UID of the pod.",
        "namespace": "Namespace of the pod.",
        "name": "Name of the pod.",
        "gpus": "Number of whole cards that the pod holds.",
        "cards": "Shares of cards that are allocated to the pod's claims.",
    },
    "GpuDepartment": {"spec": "Quotas, limits and weights of the department."},
    "GpuNodePool": {"spec": "The nodes of the pool, and how queues share them."},
    "GpuNodePoolStatus": {
        "observedGeneration": _GENERATION,
        "nodes": "Number of nodes of the pool.",
        "capacity": f"Healthy cards of the pool, {_GPUS}.",
        "allocated": f"GPU capacity that pods hold in the pool, {_GPUS}.",
        "fragmented": f"Free capacity on partly used cards, {_GPUS}.",
        "largestNodeGpus": "The most healthy cards that one node of the pool has.",
        "largestCardMiB": "The most memory, in MiB, that all healthy cards of one node have.",
        "conditions": "Valid: whether the figures and names of the spec are accepted.",
    },
    "GpuNodeSpec": {
        "rows": "One row for each pod that holds cards of the node or is about to.",
        "pods": "Number of pods that hold cards of the node; nominated rows are not counted.",
        "used": f"GPU capacity that these pods hold, {_GPUS}.",
        "changedAt": "Unix time in seconds when the rows last changed.",
    },
    "GpuNodeStatus": {
        "devices": "The cards of the node.",
        "cards": "Number of cards of the node.",
        "healthyCards": "Number of healthy cards of the node.",
        "conditions": "Whether the cards of the node can be allocated.",
    },
    "GpuPodGroup": {"spec": "Minimums, topology, priority and run time of the group."},
    "GpuPodGroupStatus": {
        "observedGeneration": _GENERATION,
        "project": "Name of the GpuProject that its pods count against.",
        "pending": "Number of pods that are not bound.",
        "scheduled": "Number of bound pods, those that run included.",
        "running": "Number of pods that have started.",
        "conditions": "Scheduled: whether the required pods are bound, and if not, why. Valid:"
        " False while its priority class does not exist. Stale: fewer pods run than the minimum.",
    },
    "GpuProject": {"spec": "Namespaces, quotas, limits and weights of the project."},
    "GpuTopology": {"spec": "The levels of the topology."},
    "GpuUsage": {"spec": "The usage of the day."},
    "GpuUsageSpec": {
        "account": "Whether the record is of a GpuProject or of a GpuNodePool.",
        "name": "Name of the GpuProject or GpuNodePool; empty for pods without a project.",
        "day": "The day in UTC, such as 2026-10-01.",
        "countedTo": "Unix time in seconds up to which usage is recorded.",
        "lines": "Usage by user, node pool and card model.",
        "overQuota": "The part of the usage above the project's quota, by node pool.",
    },
    "HostUse": {
        "fairShare": "The queue's fair share.",
        "allocated": "The amount that the queue's pods hold.",
        "requested": "The amount that the queue's running and pending pods request.",
    },
    "MonthUse": {
        "month": "The month in UTC, such as 2026-10.",
        "gpuHours": "GPU-hours used, rounded down.",
        "milliGpuSeconds": "The exact usage in milli-GPU-seconds: thousandths of a GPU times"
        " seconds.",
    },
    "MoveHold": {
        "owner": "UID of the controller that creates the moved pod again.",
        "cpuMilli": "CPU that the pod requests, in thousandths of a CPU.",
        "memoryMiB": "Host memory that the pod requests, in MiB.",
        "goneAt": "Unix time in seconds when the moved pod was found to be gone; 0: not yet.",
    },
    "OverQuota": {
        "nodePool": "Name of the GpuNodePool.",
        "held": f"{_AMOUNTS} that the project held above its quota, for each hour of the day.",
    },
    "PastUse": {
        "gpuMilliSeconds": "GPU usage: thousandths of a GPU times seconds.",
        "cpuMilliSeconds": "CPU usage: thousandths of a CPU times seconds.",
        "memoryMiBSeconds": "Host memory usage: MiB times seconds.",
        "asOf": "Unix time in seconds to which the usage is decayed.",
    },
    "PoolUse": {
        "name": "Name of the GpuNodePool.",
        "quota": f"The quota in force, {_GPUS}.",
        "fairShare": f"The fair share at the present requests, {_GPUS}.",
        "allocated": f"GPU capacity that the queue's pods hold, {_GPUS}.",
        "allocatedNonPreemptible": f"The part that its non-preemptible pods hold, {_GPUS}.",
        "requested": f"GPU capacity that running and pending pods request, {_GPUS}.",
    },
    "QueueStatus": {
        "observedGeneration": _GENERATION,
        "state": "Whether the queue's pods hold more than its quota, or than its fair share.",
        "nodePools": "Shares and allocations in each node pool.",
        "conditions": "Valid: its figures are understood. OverQuota: it holds more than its quota."
        " WithinBudget: it has GPU-hours of the month left.",
    },
    "QueueSummary": {
        "quota": f"The quota in force, {_GPUS}.",
        "limit": f"The limit in force, {_GPUS}, or unlimited.",
        "fairShare": f"The fair share at the present requests, {_GPUS}.",
        "allocated": f"GPU capacity that the queue's pods hold, {_GPUS}.",
        "borrowed": f"GPU capacity that the queue's pods hold above its quota, {_GPUS}.",
        "requested": f"GPU capacity that running and pending pods request, {_GPUS}.",
        "waiting": f"GPU capacity that pending pods request, {_GPUS}. A pod that may use several"
        " node pools counts once.",
        "pendingPods": "Number of pending pods.",
        "runningPods": "Number of pods that hold cards.",
    },
    "Row": {
        "uid": "UID of the pod.",
        "namespace": "Namespace of the pod.",
        "name": "Name of the pod.",
        "project": "Name of the GpuProject that the pod counts against.",
        "cards": "The cards that the pod holds, and its share of each.",
        "computeRequestMilli": "Share of each card's time that the pod is guaranteed, in"
        " thousandths.",
        "computeLimitMilli": "The largest share of each card's time that the pod may get, in"
        " thousandths.",
        "nonPreemptible": "True: the pod may not be evicted for other workloads.",
        "state": "nominated: the pod waits until its victims are gone; reserved: it may be bound;"
        " bound: it is bound.",
    },
    "UsageLine": {
        "user": "The user, from the pods' label ballast.dev/user; empty for pods without the label,"
        " * for all users beyond the first 256.",
        "nodePool": "Name of the GpuNodePool.",
        "model": "Model of the cards.",
        "held": f"{_AMOUNTS} that pods held, for each hour of the day.",
        "lost": f"{_AMOUNTS} of work that evictions lost, for each hour of the day.",
    },
}
