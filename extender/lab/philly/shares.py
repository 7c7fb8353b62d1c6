"""What each tenant was entitled to over time, and the picture of what it had of it.

Entitlement is the fair share that our own policy works out from quotas and the demand of the hour,
whatever rule was replayed: so the pictures of all rules have the same measure.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from extender.api.demand import Demand
from extender.api.units import MILLI_PER_GPU
from extender.lab.chart import Series, line_chart
from extender.lab.philly.cluster import empty_nodes, pod_sizes
from extender.lab.philly.meter import SAMPLE_S, Sample
from extender.lab.philly.replay import ReplayOutcome
from extender.lab.philly.rules import POOL, Part, lay_out, rule_named
from extender.lab.philly.trace import SECONDS_PER_DAY, WINDOW_START_S, PhillyTrace
from extender.policy.decide import decide
from extender.policy.plan import Settings
from extender.state.model import GPU, PodView, WorkloadView
from extender.state.nodes import NodeTable
from extender.state.snapshot import Snapshot

_ONLY_SHARES: Final = Settings(stages=())
#: Shares are drawn as means over so many hours.
_DRAWN_HOURS: Final = 24


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


def draw_shares(outcome: ReplayOutcome) -> str:
    """An SVG: allocation over entitlement of every tenant, a mean for each day with demand."""
    tenants = list(outcome.trace.quota_nodes)
    lines: list[list[tuple[float, float]]] = [[] for _ in tenants]
    days: dict[int, list[Moment]] = {}
    for moment in moments(outcome.trace, outcome.meter.samples):
        bucket = (moment.at_s - WINDOW_START_S) // (_DRAWN_HOURS * SAMPLE_S)
        days.setdefault(bucket, []).append(moment)
    for bucket, hours in days.items():
        day = (bucket + 0.5) * _DRAWN_HOURS * SAMPLE_S / SECONDS_PER_DAY
        for at, line in enumerate(lines):
            entitled = sum(moment.entitled[at] for moment in hours)
            if entitled:
                line.append((day, sum(moment.held[at] for moment in hours) / entitled))
    series = [
        Series(f"{tenant} ({outcome.trace.quota_gpus(tenant)} GPUs)", line)
        for tenant, line in zip(tenants, lines, strict=True)
    ]
    title = f"{outcome.rule.title}, {outcome.trace.nodes} nodes: allocation / fair share"
    return line_chart(title, "days since 2017-10-01", "mean of the day; 1 = entitled to", series)


def _entitle(
    trace: PhillyTrace, part: Part, nodes: NodeTable, demand: Sequence[int]
) -> tuple[float, ...]:
    """The fair share of every tenant, in GPUs, if it wants so many."""
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
    """Pods of that many GPUs together, none larger than a node: only such count as demand."""
    for at, size in enumerate(pod_sizes(gpus)):
        demand = Demand(devices=size, milli=MILLI_PER_GPU)
        yield PodView(uid=f"{tenant}-{at}", namespace=tenant, name=f"{tenant}-{at}", demand=demand)
