"""The custom resources of group ballast.dev: the Structs from which the CRDs are generated.

Quotas are written by people, so they are numbers of GPUs or Kubernetes quantities and are parsed
with `extender.api.units`. Field docs here become the descriptions that `kubectl explain` shows
(`extender.api.crd`).

The kinds live in `queue_kinds`, `pool_kinds`, `group_kinds` and, written by programs, `ledger` and
`usage_kinds`; all of them are found here.

What people write omits defaults. A status is written whole: it goes out as a merge patch, which
would keep an old value wherever the new one is a default and so left out.
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
