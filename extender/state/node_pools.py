"""Reads the policies of node pools from their objects."""

from collections.abc import Mapping
from typing import Final

from extender.api import kinds
from extender.api.kinds import GpuNodePoolSpec
from extender.api.names import DEFAULT_POOL
from extender.state.model import ElasticView, JobOrder, PlacementRule, PoolPolicy, PoolView

#: Values in a GpuNodePool -> the words of policy and scenario files for them.
_PLACEMENTS: Final[Mapping[kinds.PlacementRule, PlacementRule]] = {
    "BinPack": "binpack",
    "Spread": "spread",
    "LeastFragmentation": "fgd",
    "BestFit": "best-fit",
    "FirstFit": "first-fit",
}
_POLICIES: Final[Mapping[kinds.PoolPolicy, PoolPolicy]] = {
    "FairShare": "fairshare",
    "DemandWeighted": "demand-weighted",
    "Priority": "priority",
}
_JOB_ORDERS: Final[Mapping[kinds.JobOrder, JobOrder]] = {
    "Fifo": "fifo",
    "StrictFifo": "strict-fifo",
}


def read_pool(name: str, spec: GpuNodePoolSpec) -> PoolView:
    """The node pool's policy, from its object."""
    return PoolView(
        name,
        gpu_placement=_PLACEMENTS[spec.placement.gpu],
        policy=_POLICIES[spec.policy],
        has_preemption=spec.preemption == "Enabled",
        job_order=_JOB_ORDERS[spec.job_order],
        usage_weight_milli=10 * spec.time_based_fair_share.weight_percent,
        disruption_budget_s=spec.disruption_budget_seconds,
        max_grace_s=spec.max_termination_grace_seconds,
        reclaim_band_percent=spec.reclaim_band_percent,
        checkpoint_s=spec.checkpoint_seconds,
        consolidate_after_s=60 * spec.elastic.consolidate_after_minutes if spec.elastic else 0,
        elastic=_read_elastic(spec) if spec.policy == "FairShare" else None,
    )


def _read_elastic(spec: GpuNodePoolSpec) -> ElasticView | None:
    if spec.elastic is None:
        return None
    node = spec.elastic.node
    return ElasticView(
        max_nodes=spec.elastic.max_nodes,
        n_gpus=node.gpus,
        card_mib=node.gpu_memory_mib,
        card_model=node.gpu_model,
        cpu_milli=node.cpu * 1000,
        memory_mib=node.memory_gib * 1024,
        selector=tuple(sorted(spec.node_selector.items())),
        labels=tuple(sorted({**node.labels, **spec.node_selector}.items())),
        provisioning_class=spec.elastic.provisioning_class,
        reads_pods=spec.elastic.trigger == "UnschedulablePods",
    )


#: The default node pool while it has no object.
UNDESCRIBED: Final = read_pool(DEFAULT_POOL, GpuNodePoolSpec())
