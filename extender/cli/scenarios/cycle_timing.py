"""Times one cycle of a case, with the model in memory."""

import gc
import resource
import statistics
import time
from dataclasses import dataclass, replace

from extender.policy.decide import decide
from extender.policy.plan import Plan, Settings
from extender.policy.queues.tree import tally_of
from extender.scenario.expect import newly_decided
from extender.scenario.model.case import Case
from extender.scenario.outcome import read_plan
from extender.scenario.snapshot import settings_of, take_snapshot
from extender.scenario.world import World


@dataclass(slots=True, frozen=True)
class CycleTiming:
    """Duration and decisions of one cycle of a case. `runs_ms` has all runs in order.

    `load_s` is the time to build the model, which no run includes. `peak_rss_mib` is that of the
    whole process, loading included. `stages_ms` has, for each stage, the time that it adds to the
    cycle with all stages before it; the first includes everything before the stages.
    """

    id: str
    n_nodes: int
    n_pods: int
    load_s: float
    best_ms: float
    median_ms: float
    runs_ms: list[float]
    n_bound: int
    n_evicted: int
    n_nominated: int
    peak_rss_mib: float
    stages_ms: dict[str, float]


def time_case(case: Case, n_runs: int, *, by_stage: bool = False) -> CycleTiming:
    """Time the first cycle of the case; raises ScenarioError if the case is contradictory."""
    started = time.perf_counter()
    world = World.of(case)
    load_s = time.perf_counter() - started
    settings = settings_of(case)
    runs = [_time_cycle(world, settings) for _ in range(n_runs)]
    runs_ms = [took_ms for took_ms, _ in runs]
    counts = newly_decided(read_plan(world, runs[-1][1], 1))
    stages_ms = _by_stage(world, settings, n_runs) if by_stage else {}
    return CycleTiming(
        id=case.id,
        n_nodes=len(case.nodes),
        n_pods=len(world.tasks),
        load_s=load_s,
        best_ms=min(runs_ms),
        median_ms=statistics.median(runs_ms),
        runs_ms=runs_ms,
        n_bound=counts["bound"],
        n_evicted=counts["evicted"],
        n_nominated=counts["nominated"],
        peak_rss_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        stages_ms=stages_ms,
    )


def _time_cycle(world: World, settings: Settings) -> tuple[float, Plan]:
    """Time one cycle on a new snapshot, as the controller does; returns milliseconds and plan."""
    snapshot = take_snapshot(world)
    # The controller's model keeps these sums up to date, so they are no part of a cycle.
    tally_of(snapshot)
    gc.collect()
    started = time.perf_counter()
    plan = decide(snapshot, settings)
    return (time.perf_counter() - started) * 1000, plan


def _by_stage(world: World, settings: Settings, n_runs: int) -> dict[str, float]:
    found: dict[str, float] = {}
    before_ms = 0.0
    for at, stage in enumerate(settings.stages):
        shorter = replace(settings, stages=settings.stages[: at + 1])
        best_ms = min(_time_cycle(world, shorter)[0] for _ in range(n_runs))
        found[stage] = best_ms - before_ms
        before_ms = best_ms
    return found
