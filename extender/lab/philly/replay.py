"""The event loop of a replay: jobs arrive and finish, and our own `decide` does the rest.

A cycle runs as soon as a relevant change occurs, but not before `ReplayPace.cycle_s` have passed
since the last one, as the live controller collects events too. Cycles that cannot change anything
are left out.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from extender.api.units import MILLI_PER_GPU
from extender.lab.philly.cluster import SimulatedCluster
from extender.lab.philly.meter import ReplayMeter
from extender.lab.philly.plans import Steps, read_plan
from extender.lab.philly.rules import CHECKPOINT_S, RESTART_S, ReplayPace, ReplayRule, lay_out
from extender.lab.philly.trace import PhillyTrace, TraceJob
from extender.policy.decide import decide
from extender.scenario.longrun.work import TaskProgress
from extender.state.model import GPU

#: Interval of cycles for pending jobs while time alone may make running jobs preemptible.
_LOOK_AGAIN_S: Final = 60

#: Called with the number of newly finished jobs.
Progress = Callable[[int], None]


class DeadlockError(Exception):
    """Jobs are pending, nothing runs, and no event remains: this must never happen."""


@dataclass(slots=True)
class Stop:
    """A job was stopped: when, which, for which beneficiary (keys), after it had run for `ran_s`.

    `is_move`: it continued elsewhere at once.
    """

    at_s: int
    victim: str
    beneficiary: str
    is_move: bool
    ran_s: int = 0


@dataclass(slots=True)
class JobRecord:
    """A job and its progress."""

    job: TraceJob
    work: TaskProgress
    finished_s: int = 0

    @property
    def wait_s(self) -> int:
        """All time since its submission in which it did not hold its GPUs."""
        return self.finished_s - self.job.submit_s - self.work.held_s

    @property
    def completion_s(self) -> int:
        """From its submission to its end."""
        return self.finished_s - self.job.submit_s


@dataclass(slots=True)
class ReplayOutcome:
    """The results of one replay; `records` are in the order of the trace."""

    trace: PhillyTrace
    rule: ReplayRule
    records: list[JobRecord]
    meter: ReplayMeter
    stops: list[Stop]
    n_cycles: int
    decide_s: float


@dataclass(slots=True)
class _Cell:
    """A part of the cluster and the time of its next cycle. `is_released`: resources were released
    since the last one."""

    cluster: SimulatedCluster
    due_s: int | None = None
    last_cycle_s: int = 0
    is_released: bool = False

    def ask_for_cycle(self, now_s: int, cycle_s: int) -> None:
        """Schedule a cycle for a relevant change."""
        soonest_s = max(now_s, self.last_cycle_s + cycle_s)
        self.due_s = soonest_s if self.due_s is None else min(self.due_s, soonest_s)


@dataclass(slots=True)
class Replay:
    """One run of one rule over one trace."""

    trace: PhillyTrace
    rule: ReplayRule
    pace: ReplayPace = field(default_factory=ReplayPace)
    meter: ReplayMeter = field(init=False)
    stops: list[Stop] = field(default_factory=list)
    n_cycles: int = 0
    decide_s: float = 0.0
    _cells: list[_Cell] = field(default_factory=list)
    _cell_of: dict[str, _Cell] = field(default_factory=dict)
    _records: dict[str, JobRecord] = field(default_factory=dict)
    _ends: list[tuple[int, int, str, int]] = field(default_factory=list)
    _shares: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.meter = ReplayMeter(self.trace)
        for part in lay_out(self.rule, self.trace, self.pace):
            cell = _Cell(SimulatedCluster(self.rule, part, self.pace))
            self._cells.append(cell)
            self._cell_of.update(dict.fromkeys(part.tenants, cell))

    def run(self, progress: Progress | None = None) -> ReplayOutcome:
        """Replay until every job has finished."""
        at, jobs = 0, self.trace.jobs
        while (now_s := self._next_s(jobs[at].submit_s if at < len(jobs) else None)) is not None:
            self.meter.advance(now_s)
            n_done = self._finish_until(now_s)
            while at < len(jobs) and jobs[at].submit_s == now_s:
                self._arrive(jobs[at], now_s)
                at += 1
            for cell in self._cells:
                if cell.due_s is not None and cell.due_s <= now_s:
                    self._run_cycle(cell, now_s)
            if progress is not None and n_done:
                progress(n_done)
        n_waiting = sum(cell.cluster.n_waiting for cell in self._cells)
        if n_waiting:
            raise DeadlockError(f"{self.rule.name}: {n_waiting} jobs wait for ever")
        records = list(self._records.values())
        return ReplayOutcome(
            self.trace, self.rule, records, self.meter, self.stops, self.n_cycles, self.decide_s
        )

    def _next_s(self, arrival_s: int | None) -> int | None:
        """The next time of an arrival, an end or a cycle; None: no event remains."""
        times = [cell.due_s for cell in self._cells if cell.due_s is not None]
        if arrival_s is not None:
            times.append(arrival_s)
        if self._ends:
            times.append(self._ends[0][0])
        return min(times, default=None)

    def _arrive(self, job: TraceJob, now_s: int) -> None:
        cell = self._cell_of[job.tenant]
        is_inert = not cell.is_released and self._changes_nothing(cell, job)
        key = cell.cluster.arrive(job).waiting.key
        self._records[key] = JobRecord(job, TaskProgress(job.run_s, CHECKPOINT_S, RESTART_S))
        self.meter.wait(job.tenant, job.gpus)
        if not is_inert:
            cell.ask_for_cycle(now_s, self.pace.cycle_s)

    def _changes_nothing(self, cell: _Cell, job: TraceJob) -> bool:
        """Whether the last cycle's result also applies to this job.

        It does if a job that requests no more was refused, and fair shares are unchanged: they are
        if its queue already requested more than its share.
        """
        if not cell.cluster.has_blocked_no_larger(job):
            return False
        if self.rule.sharing != "tenants":
            return True
        return self.meter.demand_of(job.tenant) * MILLI_PER_GPU > self._shares.get(job.tenant, 0)

    def _finish_until(self, now_s: int) -> int:
        """End every job whose work is done; returns their number."""
        n_done = 0
        while self._ends and self._ends[0][0] <= now_s:
            _, _, key, n_stops = heappop(self._ends)
            record = self._records[key]
            if record.work.n_stops != n_stops:
                continue
            cell = self._cell_of[record.job.tenant]
            cell.cluster.finish(key)
            cell.is_released = True
            lost_s = record.work.finish(now_s)
            self.meter.lose(lost_s * record.job.gpus)
            record.finished_s = now_s
            self.meter.hold(record.job.tenant, -record.job.gpus)
            if cell.cluster.n_waiting:
                cell.ask_for_cycle(now_s, self.pace.cycle_s)
            n_done += 1
        return n_done

    def _run_cycle(self, cell: _Cell, now_s: int) -> None:
        cell.due_s, cell.last_cycle_s, cell.is_released = None, now_s, False
        if not cell.cluster.n_waiting:
            return
        if not self.rule.may_stop and not cell.cluster.has_room_for_one():
            return
        snapshot = cell.cluster.snapshot(now_s)
        begun = time.perf_counter()
        plan = decide(snapshot, self.rule.settings)
        self.decide_s += time.perf_counter() - begun
        self.n_cycles += 1
        for (queue, _), share in plan.shares.items():
            self._shares[queue] = share.fair_share[GPU]
        steps = read_plan(plan)
        self._apply(cell.cluster, steps, now_s)
        has_started = bool(steps.starts) and not self.pace.is_patient
        if self.rule.may_stop and (steps.has_victims or has_started):
            # Started jobs may be victims from the next cycle on, so that one may decide more. With
            # a preemption delay, the next event is soon enough for that.
            cell.is_released = True
            cell.ask_for_cycle(now_s, self.pace.cycle_s)
        elif self.rule.may_stop:
            self._look_again(cell, now_s)

    def _look_again(self, cell: _Cell, now_s: int) -> None:
        """Schedule a cycle for when time alone may change the last result."""
        if self.pace.min_runtime_s and cell.cluster.n_waiting:
            cell.due_s = now_s + max(_LOOK_AGAIN_S, self.pace.cycle_s)
        elif self.pace.preemption_delay_s:
            due_s = cell.cluster.next_patience_end(now_s)
            cell.due_s = None if due_s is None else max(due_s, now_s + self.pace.cycle_s)

    def _apply(self, cluster: SimulatedCluster, steps: Steps, now_s: int) -> None:
        for key, beneficiary in steps.stops.items():
            job = self._stop(key, beneficiary, now_s, is_move=False)
            cluster.stop(key, now_s)
            self.meter.hold(job.tenant, -job.gpus)
            self.meter.wait(job.tenant, job.gpus)
        for key, beneficiary in steps.moves.items():
            self._stop(key, beneficiary, now_s, is_move=True)
            cluster.lift(key, steps.places[key])
        for key in steps.moves:
            cluster.settle(key, steps.places[key], now_s)
            self._go_on(key, now_s)
        for key, places in steps.starts.items():
            job = cluster.start(key, places, now_s).job
            self._go_on(key, now_s)
            self.meter.wait(job.tenant, -job.gpus)
            self.meter.hold(job.tenant, job.gpus)

    def _stop(self, key: str, beneficiary: str, now_s: int, *, is_move: bool) -> TraceJob:
        record = self._records[key]
        ran_s = now_s - record.work.started_s
        lost_s = record.work.stop(now_s)
        self.meter.lose(lost_s * record.job.gpus)
        self.stops.append(Stop(now_s, key, beneficiary, is_move, ran_s))
        return record.job

    def _go_on(self, key: str, now_s: int) -> None:
        record = self._records[key]
        end_s = record.work.start(now_s)
        assert end_s is not None, "every job of a trace ends"
        heappush(self._ends, (end_s, record.job.number, key, record.work.n_stops))
