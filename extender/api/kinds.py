"""The custom resources of group ballast.dev: the Structs from which the CRDs are generated.

Users write quotas as numbers of GPUs or Kubernetes quantities; `extender.api.units` parses them.
`kubectl explain` shows the field descriptions (`extender.api.crd`).

This module exports the kinds of `queue_kinds`, `pool_kinds` and `group_kinds`, and those that only
programs write, of `ledger` and `usage_kinds`.

A spec omits defaults. A status does not: it is sent as a merge patch, and a field that the patch
omits would keep its old value.
"""

from msgspec import Struct

from extender.api.group_kinds import (
    GpuPodGroup,
    GpuPodGroupSpec,
    GpuPodGroupStatus,
    GpuTopology,
    GpuTopologySpec,
    SubGroup,
    TopologyConstraint,
    TopologyLevel,
    WorkloadWeight,
)
from extender.api.ledger import (
    CardShare,
    Device,
    ForeignHold,
    GpuNode,
    GpuNodeSpec,
    GpuNodeStatus,
    MoveHold,
    RestartPolicy,
    Row,
    RowState,
)
from extender.api.pool_kinds import (
    Elastic,
    ElasticNode,
    GpuNodePool,
    GpuNodePoolSpec,
    GpuNodePoolStatus,
    JobOrder,
    Placement,
    PlacementRule,
    PoolPolicy,
    TimeBasedFairShare,
    TimeSlicing,
    TimeSlicingMode,
)
from extender.api.queue_kinds import (
    GpuCount,
    GpuDepartment,
    GpuDepartmentSpec,
    GpuFigures,
    GpuProject,
    GpuProjectSpec,
    HostFigures,
    HostUse,
    KindSelector,
    KubeQuantity,
    MinRuntime,
    MonthUse,
    PastUse,
    PoolFigures,
    PoolUse,
    QueueStatus,
    QueueSummary,
    Seconds,
)
from extender.api.usage_kinds import GpuUsage, GpuUsageSpec, OverQuota, UsageLine

__all__ = [
    "KINDS",
    "CardShare",
    "Device",
    "Elastic",
    "ElasticNode",
    "ForeignHold",
    "GpuCount",
    "GpuDepartment",
    "GpuDepartmentSpec",
    "GpuFigures",
    "GpuNode",
    "GpuNodePool",
    "GpuNodePoolSpec",
    "GpuNodePoolStatus",
    "GpuNodeSpec",
    "GpuNodeStatus",
    "GpuPodGroup",
    "GpuPodGroupSpec",
    "GpuPodGroupStatus",
    "GpuProject",
    "GpuProjectSpec",
    "GpuTopology",
    "GpuTopologySpec",
    "GpuUsage",
    "GpuUsageSpec",
    "HostFigures",
    "HostUse",
    "JobOrder",
    "KindSelector",
    "KubeQuantity",
    "MinRuntime",
    "MonthUse",
    "MoveHold",
    "OverQuota",
    "PastUse",
    "Placement",
    "PlacementRule",
    "PoolFigures",
    "PoolPolicy",
    "PoolUse",
    "QueueStatus",
    "QueueSummary",
    "RestartPolicy",
    "Row",
    "RowState",
    "Seconds",
    "SubGroup",
    "TimeBasedFairShare",
    "TimeSlicing",
    "TimeSlicingMode",
    "TopologyConstraint",
    "TopologyLevel",
    "UsageLine",
    "WorkloadWeight",
]

KINDS: tuple[type[Struct], ...] = (
    GpuDepartment,
    GpuProject,
    GpuNodePool,
    GpuPodGroup,
    GpuNode,
    GpuTopology,
    GpuUsage,
)
