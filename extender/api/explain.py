"""What `kubectl explain` says of fields that only programs write.

A field that people write is described where it is declared (`extender.api.kinds`).
"""

from collections.abc import Mapping
from typing import Final

_GPUS: Final = "as a number of GPUs"
_AMOUNTS: Final = "Thousandths of a GPU times seconds"

#: Struct -> field as it stands in YAML -> description.
TEXTS: Final[Mapping[str, Mapping[str, str]]] = {
    "CardShare": {
        "index": "Index of the card on its node.",
        "milli": "Thousandths of the card that the pod holds; 1000 is the whole card.",
        "memoryMiB": "MiB of the card's memory that the pod holds.",
    },
    "Condition": {
        "type": "What the condition is about, in CamelCase.",
        "status": "True, False or Unknown.",
        "reason": "One word of the closed list in docs/reasons.md.",
        "message": "A sentence with names and figures.",
        "observedGeneration": "metadata.generation of the object that the condition is about.",
        "lastTransitionTime": "When the status last changed.",
    },
    "Device": {
        "index": "Index of the card on its node.",
        "memoryMiB": "MiB of memory that the card has.",
        "uuid": "The card's UUID, as the driver reports it.",
        "model": "The card's model, as GPU feature discovery or the driver reports it.",
        "health": "Unhealthy: the card is not allocated to new pods.",
    },
    "ForeignHold": {
        "uid": "UID of the pod.",
        "namespace": "Namespace of the pod.",
        "name": "Name of the pod.",
        "gpus": "GPUs of the node that the pod holds.",
        "cards": "Shares of cards that the pod's claims hold.",
    },
    "GpuDepartment": {"spec": "What the department's projects may have together."},
    "GpuNodePool": {"spec": "Which nodes the pool has, and how they are shared."},
    "GpuNodePoolStatus": {
        "observedGeneration": "metadata.generation of the object when this was written.",
        "nodes": "Nodes that the pool has.",
        "capacity": f"The pool's healthy cards, {_GPUS}.",
        "allocated": f"What pods hold in the pool, {_GPUS}.",
        "fragmented": f"What is free on partly used cards, {_GPUS}.",
        "conditions": "Whether the pool works as its spec says.",
    },
    "GpuNodeSpec": {
        "rows": "One row per pod that holds or is about to hold cards of the node.",
        "pods": "Pods that hold cards of the node; nominated rows are not counted.",
        "used": f"What these pods hold, {_GPUS}.",
        "changedAt": "Unix seconds when the rows last changed.",
    },
    "GpuNodeStatus": {
        "devices": "The node's cards.",
        "cards": "How many cards the node has.",
        "healthyCards": "How many of them are healthy.",
        "conditions": "Whether the node's cards can be allocated.",
    },
    "GpuPodGroup": {"spec": "What the group's pods need to run."},
    "GpuPodGroupStatus": {
        "observedGeneration": "metadata.generation of the object when this was written.",
        "project": "The GpuProject that its pods count against.",
        "pending": "Pods that wait.",
        "scheduled": "Pods that have a node and do not run yet.",
        "running": "Pods that run.",
        "conditions": "Scheduled: whether the group runs, or why it waits. Stale: too few run.",
    },
    "GpuProject": {"spec": "The namespaces of the project, and what its pods may have."},
    "GpuTopology": {"spec": "The levels of nearness."},
    "GpuUsage": {"spec": "The amounts of the day."},
    "GpuUsageSpec": {
        "account": "Project or NodePool: what the record is about.",
        "name": "Name of the GpuProject or GpuNodePool; empty for pods of no project.",
        "day": "The day in UTC, as 2026-10-01.",
        "countedTo": "Unix seconds up to which everything that was held is in the record.",
        "lines": "What was held, by user, node pool and card model.",
        "overQuota": "The part of it above the project's quota, by node pool.",
    },
    "HostUse": {
        "fairShare": "What the queue is entitled to now.",
        "allocated": "What the queue's pods hold.",
        "requested": "What the queue's pods hold and wait for.",
    },
    "MonthUse": {
        "month": "The month in UTC, as 2026-10.",
        "gpuHours": "GPU-hours that were used, rounded down.",
        "milliGpuSeconds": "The same exactly: thousandths of a GPU times seconds.",
    },
    "MoveHold": {
        "owner": "UID of the controller that creates the moved pod again.",
        "cpuMilli": "Thousandths of a CPU that the pod requests.",
        "memoryMiB": "MiB of host memory that the pod requests.",
        "goneAt": "Unix seconds when the moved pod was seen to be gone; 0: not yet.",
    },
    "OverQuota": {
        "nodePool": "Name of the GpuNodePool.",
        "held": f"{_AMOUNTS} that were held above the quota, for each hour of the day.",
    },
    "PastUse": {
        "gpuMilliSeconds": "Thousandths of a GPU times seconds.",
        "cpuMilliSeconds": "Thousandths of a CPU times seconds.",
        "memoryMiBSeconds": "MiB of host memory times seconds.",
        "asOf": "Unix seconds of these figures.",
    },
    "PoolUse": {
        "name": "Name of the GpuNodePool.",
        "quota": f"The quota in force, {_GPUS}.",
        "fairShare": f"The fair share, for what the queue requests, {_GPUS}.",
        "allocated": f"What the queue's pods hold, {_GPUS}.",
        "allocatedNonPreemptible": f"What its non-preemptible pods hold, {_GPUS}.",
        "requested": f"What the queue's pods hold and wait for, {_GPUS}.",
    },
    "QueueStatus": {
        "observedGeneration": "metadata.generation of the object when this was written.",
        "state": "Whether the queue's pods hold more than its quota, or than its fair share.",
        "nodePools": "The figures in each node pool.",
        "conditions": "Valid: its figures are understood. OverQuota: it holds more than its quota."
        " WithinBudget: it has GPU-hours of the month left.",
    },
    "QueueSummary": {
        "quota": f"The quota in force, {_GPUS}.",
        "limit": f"The limit in force, {_GPUS}, or unlimited.",
        "fairShare": f"The fair share, for what the queue requests, {_GPUS}.",
        "allocated": f"What the queue's pods hold, {_GPUS}.",
        "borrowed": f"What the queue's pods hold above its quota, {_GPUS}.",
        "requested": f"What the queue's pods hold and wait for, {_GPUS}.",
        "waiting": f"What the queue's pods wait for, {_GPUS}.",
        "pendingPods": "Pods that wait.",
        "runningPods": "Pods that hold cards.",
    },
    "Row": {
        "uid": "UID of the pod.",
        "namespace": "Namespace of the pod.",
        "name": "Name of the pod.",
        "project": "The GpuProject that the pod counts against.",
        "cards": "What the pod holds of which card.",
        "computeRequestMilli": "Thousandths of each card's time that the pod is guaranteed.",
        "computeLimitMilli": "Thousandths of each card's time that the pod gets at most.",
        "nonPreemptible": "Whether the pod may not be evicted for other work.",
        "state": "nominated: waits for victims to leave; reserved: may be bound; bound: is bound.",
    },
    "UsageLine": {
        "user": "The pods' label ballast.dev/user; empty without one, * for users beyond 256.",
        "nodePool": "Name of the GpuNodePool.",
        "model": "Model of the cards.",
        "held": f"{_AMOUNTS} that were held, for each hour of the day.",
        "lost": f"{_AMOUNTS} of work that evictions cost, for each hour of the day.",
    },
}
