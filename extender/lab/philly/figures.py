"""The figures of a replay as the note defines them, and some that other schedulers do not publish.

Utilisation and deprivation are over the steady days, everything else over all jobs. Waiting is all
the time after submission in which a job did not hold its GPUs, also after an eviction. The replay
of private partitions shows how a tenant would have fared alone.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Final

from msgspec import Struct

from extender.lab.philly.replay import JobRecord, ReplayOutcome, Stop
from extender.lab.philly.shares import Moment, moments

#: A job is treated unfairly if it takes longer than this multiple of its time in a private
#: partition.
UNFAIR_RHO: Final = 1.05
#: Means of tenants with fewer jobs are ignored; up to a minute more is not worse.
MIN_JOBS: Final = 100
WORSE_S: Final = 60
#: A job that is stopped or moved this soon after its start was started in vain.
YOUNG_S: Final = 600
#: A job that is stopped twice within this time is a repeat victim.
REPEAT_S: Final = 3600
_HOUR: Final = 3600


class TenantFigures(Struct):
    """One tenant: GPUs of quota, jobs, mean waits in hours, GPU-hours under min(quota, demand)."""

    tenant: str
    quota_gpus: int
    jobs: int
    mean_wait_h: float
    private_mean_wait_h: float
    deprived_gpu_h: float

    @property
    def is_worse(self) -> bool:
        """Whether its jobs wait longer than in a partition of its own; false with few jobs."""
        more_h = self.mean_wait_h - self.private_mean_wait_h
        return self.jobs >= MIN_JOBS and more_h * _HOUR > WORSE_S


class Figures(Struct):
    """One row of the comparison: shares in percent, waits in hours, GPU-hours.

    `useful_pct` is allocation without lost work; `rho` compares completion times with private
    partitions. A young victim had run for less than ten minutes, a repeat victim was stopped before
    in the same hour; ping-pong counts stops of a job for one that had been stopped for it. Jain's
    index is over allocation / entitlement of the tenants that are entitled to anything (1: all are
    equal); `fairness_error_gpu_h` is the sum of what tenants lack of their fair shares.
    """

    rule: str
    nodes: int
    jobs: int
    alloc_pct: float
    useful_pct: float
    useful_gpu_h: float
    mean_wait_h: float
    p99_wait_h: float
    max_wait_h: float
    wait_8_h: float
    wait_over_8_h: float
    idle_pending_pct: float
    deprived_gpu_h: float
    deprived_all_gpu_h: float
    unfair_pct: float
    rho_p99: float
    rho_max: float
    worse_tenants: int
    counted_tenants: int
    evictions: int
    moves: int
    lost_gpu_h: float
    young_victims: int
    repeat_victims: int
    ping_pongs: int
    jain_mean: float
    jain_p5: float
    fairness_error_gpu_h: float
    cycles: int
    decide_s: float
    tenants: list[TenantFigures]


def summarise(outcome: ReplayOutcome, private: ReplayOutcome) -> Figures:
    """The figures of `outcome`, compared with the same trace in private partitions."""
    trace, meter = outcome.trace, outcome.meter
    start_s, end_s = trace.steady_s
    capacity_gpu_s = trace.gpus * (end_s - start_s)
    useful_gpu_s = meter.steady_held_gpu_s - meter.steady_lost_gpu_s
    waits = sorted(record.wait_s for record in outcome.records)
    rho = sorted(_rho(outcome.records, private.records))
    tenants = _tenants(outcome, private)
    n_moves = sum(stop.is_move for stop in outcome.stops)
    hours = [hour for hour in moments(trace, meter.samples) if start_s <= hour.at_s < end_s]
    jain = sorted(index for hour in hours if (index := jain_index(hour)) is not None)
    return Figures(
        rule=outcome.rule.name,
        nodes=trace.nodes,
        jobs=len(outcome.records),
        alloc_pct=100 * meter.steady_held_gpu_s / capacity_gpu_s,
        useful_pct=100 * useful_gpu_s / capacity_gpu_s,
        useful_gpu_h=useful_gpu_s / _HOUR,
        mean_wait_h=fmean(waits) / _HOUR,
        p99_wait_h=percentile(waits, 99) / _HOUR,
        max_wait_h=waits[-1] / _HOUR,
        wait_8_h=_mean_wait_h(record for record in outcome.records if record.job.gpus == 8),
        wait_over_8_h=_mean_wait_h(record for record in outcome.records if record.job.gpus > 8),
        idle_pending_pct=100 * meter.steady_idle_pending_gpu_s / capacity_gpu_s,
        deprived_gpu_h=sum(meter.steady_deprived_gpu_s.values()) / _HOUR,
        deprived_all_gpu_h=meter.deprived_gpu_s / _HOUR,
        unfair_pct=100 * sum(each > UNFAIR_RHO for each in rho) / len(rho),
        rho_p99=percentile(rho, 99),
        rho_max=rho[-1],
        worse_tenants=sum(tenant.is_worse for tenant in tenants),
        counted_tenants=sum(tenant.jobs >= MIN_JOBS for tenant in tenants),
        evictions=len(outcome.stops) - n_moves,
        moves=n_moves,
        lost_gpu_h=meter.lost_gpu_s / _HOUR,
        young_victims=sum(stop.ran_s < YOUNG_S for stop in outcome.stops),
        repeat_victims=count_repeats(outcome.stops),
        ping_pongs=count_ping_pongs(outcome.stops),
        jain_mean=fmean(jain) if jain else 1.0,
        jain_p5=percentile(jain, 5) if jain else 1.0,
        fairness_error_gpu_h=sum(map(_lacking_gpus, hours)),
        cycles=outcome.n_cycles,
        decide_s=outcome.decide_s,
        tenants=tenants,
    )


def percentile(ascending: Sequence[float], percent: int) -> float:
    """The smallest value that is at least as large as `percent` % of the values."""
    return ascending[max(0, -(-len(ascending) * percent // 100) - 1)]


def jain_index(hour: Moment) -> float | None:
    """How evenly entitlements are met, from 1 / tenants to 1; None if nothing is held."""
    parts = [held / due for held, due in zip(hour.held, hour.entitled, strict=True) if due]
    squares = sum(part * part for part in parts)
    return sum(parts) ** 2 / (len(parts) * squares) if squares else None


def count_repeats(stops: Iterable[Stop]) -> int:
    """Stops of a job that had been stopped within the hour before."""
    last_s: dict[str, int] = {}
    n_repeats = 0
    for stop in stops:
        n_repeats += stop.at_s - last_s.get(stop.victim, -REPEAT_S - 1) <= REPEAT_S
        last_s[stop.victim] = stop.at_s
    return n_repeats


def count_ping_pongs(stops: Iterable[Stop]) -> int:
    """Stops of a job for another that had been stopped for it. Moves do not count."""
    seen: Counter[tuple[str, str]] = Counter()
    n_found = 0
    for stop in stops:
        if stop.is_move:
            continue
        n_found += seen[stop.beneficiary, stop.victim] > 0
        seen[stop.victim, stop.beneficiary] += 1
    return n_found


def _lacking_gpus(hour: Moment) -> float:
    return sum(max(0.0, due - held) for held, due in zip(hour.held, hour.entitled, strict=True))


def _rho(records: Sequence[JobRecord], alone: Sequence[JobRecord]) -> list[float]:
    return [
        shared.completion_s / private.completion_s
        for shared, private in zip(records, alone, strict=True)
    ]


def _mean_wait_h(records: Iterable[JobRecord]) -> float:
    waits = [record.wait_s for record in records]
    return fmean(waits) / _HOUR if waits else 0.0


def _tenants(outcome: ReplayOutcome, private: ReplayOutcome) -> list[TenantFigures]:
    trace = outcome.trace
    by_tenant: dict[str, list[JobRecord]] = {tenant: [] for tenant in trace.quota_nodes}
    for record in outcome.records:
        by_tenant[record.job.tenant].append(record)
    alone: dict[str, list[JobRecord]] = {tenant: [] for tenant in trace.quota_nodes}
    for record in private.records:
        alone[record.job.tenant].append(record)
    return [
        TenantFigures(
            tenant=tenant,
            quota_gpus=trace.quota_gpus(tenant),
            jobs=len(records),
            mean_wait_h=_mean_wait_h(records),
            private_mean_wait_h=_mean_wait_h(alone[tenant]),
            deprived_gpu_h=outcome.meter.steady_deprived_gpu_s[tenant] / _HOUR,
        )
        for tenant, records in by_tenant.items()
    ]
