"""Each tenant's entitlement over time, and its allocation.

The entitlement is the fair share that our own policy computes from quotas and the demand of the
hour, whatever rule was replayed, so all rules are measured alike.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from extender.api.demand import Demand
from extender.api.units import MILLI_PER_GPU
from extender.lab.philly.cluster import empty_nodes, pod_sizes
from extender.lab.philly.meter import Sample
from extender.lab.philly.rules import POOL, Part, lay_out, rule_named
from extender.lab.philly.trace import WINDOW_START_S, PhillyTrace
from extender.policy.decide import decide
from extender.policy.plan import Settings
from extender.state.model import GPU, PodView, WorkloadView
from extender.state.nodes import NodeTable
from extender.state.snapshot import Snapshot

_ONLY_SHARES: Final = Settings(stages=())


@dataclass(slots=True, frozen=True)
class Moment:
    """One hour: GPUs that each tenant held and was entitled to, in the order of the quotas."""

    at_s: int
    held: tuple[int, ...]
    entitled: tuple[float, ...]


def moments(trace: PhillyTrace, samples: Sequence[Sample]) -> Iterator[Moment]:
    """Every sample with its entitlements; costs one division of shares each."""
    part = lay_out(rule_named("ballast"), trace)[0]
    nodes = empty_nodes(part.n_nodes)
    known: dict[tuple[int, ...], tuple[float, ...]] = {}
    for sample in samples:
        demand = tuple(h + w for h, w in zip(sample.held, sample.waiting, strict=True))
        if demand not in known:
            known[demand] = _entitle(trace, part, nodes, demand)
        yield Moment(sample.at_s, sample.held, known[demand])


def _entitle(
    trace: PhillyTrace, part: Part, nodes: NodeTable, demand: Sequence[int]
) -> tuple[float, ...]:
    """The fair share of every tenant, in GPUs, with this demand."""
    workloads = {
        tenant: WorkloadView(
            key=tenant,
            namespace=tenant,
            name=tenant,
            project=tenant,
            pods=tuple(_pods_of(tenant, gpus)),
        )
        for tenant, gpus in zip(trace.quota_nodes, demand, strict=True)
        if gpus
    }
    snapshot = Snapshot(WINDOW_START_S, nodes.copy(), part.pools, part.queues, workloads)
    shares = decide(snapshot, _ONLY_SHARES).shares
    return tuple(
        shares[tenant, POOL].fair_share[GPU] / MILLI_PER_GPU for tenant in trace.quota_nodes
    )


def _pods_of(tenant: str, gpus: int) -> Iterator[PodView]:
    """Pods with that many GPUs in total, none larger than a node: only such count as demand."""
    for at, size in enumerate(pod_sizes(gpus)):
        demand = Demand(devices=size, milli=MILLI_PER_GPU)
        yield PodView(uid=f"{tenant}-{at}", namespace=tenant, name=f"{tenant}-{at}", demand=demand)
