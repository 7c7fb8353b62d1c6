"""The event loop of a long run: jobs arrive and end, and `decide` does the rest.

Virtual time, in whole seconds, jumps from one event to the next. After an event, cycles run every
`CYCLE_S` until one decides nothing. While pods are pending, and if a pool empties nodes, further
cycles check what time alone changes: after a pause that doubles each time, up to the file's
`lookEvery`.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import Final

from extender.policy.workloads.budget_deadlines import CALM_S
from extender.scenario.clock import pass_time
from extender.scenario.errors import ScenarioError
from extender.scenario.longrun.arrivals import arrival_times, draw, draw_span
from extender.scenario.longrun.meter import LongRunMeter
from extender.scenario.longrun.owed import Owner, owed_now
from extender.scenario.longrun.report import SimulationReport, misses
from extender.scenario.longrun.work import TaskProgress
from extender.scenario.model.case import Case
from extender.scenario.model.simulation import Happening
from extender.scenario.outcome import Outcome
from extender.scenario.run import Judge, run_cycle
from extender.scenario.world import NOW_S, RunJob, RunTask, World
from extender.state.model import GPU

#: The controller's interval is at most this.
CYCLE_S: Final = 2
_DAY_S: Final = 86_400

#: Called with the seconds since the start, the world and the outcome of a cycle before it settles.
Watch = Callable[[int, World, Outcome], None]
#: (seconds since the start, order, action)
_Event = tuple[int, int, Callable[[], bool]]


def simulate(
    case: Case, days: float | None = None, watch: Watch | None = None, judge: Judge | None = None
) -> SimulationReport:
    """Run the case's cluster for its days, or for `days`; deterministic.

    Findings of `judge` are in the report as `broken`. Raises ScenarioError if the case contradicts
    itself.
    """
    end_s = int((case.simulate.days if days is None else days) * _DAY_S)
    return _Run(case, end_s, watch, judge).run()


@dataclass(slots=True)
class _Run:
    """The run of one simulation. Seconds count from its start, except in the world."""

    case: Case
    end_s: int
    watch: Watch | None
    judge: Judge | None
    world: World = field(init=False)
    meter: LongRunMeter = field(default_factory=LongRunMeter)
    report: SimulationReport = field(init=False)
    now_s: int = 0
    _events: list[_Event] = field(default_factory=list)
    _n_events: int = 0
    _due_s: int | None = 0
    _pause_s: int = CYCLE_S
    _work: dict[str, TaskProgress] = field(default_factory=dict)
    _line_of: dict[str, int] = field(default_factory=dict)
    _n_drawn: Counter[int] = field(default_factory=Counter)
    _n_changes: int = 1
    _n_seen: int = 0
    _changed_s: int = 0
    _evicted_at: dict[str, int] = field(default_factory=dict)
    _last: Outcome | None = None
    _with_gpus: frozenset[str] = frozenset()
    _empties_nodes: bool = False

    def __post_init__(self) -> None:
        self.world = World.of(self.case)
        cluster = self.world.cluster
        cards = cluster.free.cards
        self._with_gpus = frozenset(name for name, ix in cards.ix.items() if cards.n_cards[ix])
        self._empties_nodes = any(pool.consolidate_after_s for pool in cluster.pools.values())
        self.report = SimulationReport(self.case.id, self.end_s)

    def run(self) -> SimulationReport:
        """Run the whole simulation."""
        self._prepare()
        self._note_changes()
        while (now_s := self._next_s()) is not None and now_s < self.end_s:
            self._pass_time(now_s)
            has_changed = False
            while self._events and self._events[0][0] <= now_s:
                has_changed |= heappop(self._events)[2]()
            if has_changed:
                self._change()
            if self._due_s is not None and self._due_s <= now_s:
                self._run_cycle()
        self._pass_time(self.end_s)
        return self._finish()

    def _next_s(self) -> int | None:
        times = [] if self._due_s is None else [self._due_s]
        if self._events:
            times.append(self._events[0][0])
        return min(times, default=None)

    def _pass_time(self, now_s: int) -> None:
        self.meter.advance(now_s)
        pass_time(self.world, now_s - self.now_s)
        self.now_s = now_s

    def _change(self) -> None:
        """Run a cycle after an arrival, an end or a change."""
        self._n_changes += 1
        self._changed_s = self.now_s
        self._due_s, self._pause_s = self.now_s, CYCLE_S
        self._note_changes()

    def _note_changes(self) -> None:
        """Update what is held and owed."""
        self.meter.tell_owed(owed_now(self.world))
        self._note_held()

    def _note_held(self) -> None:
        held: Counter[Owner] = Counter()
        is_waited, used = False, set[str]()
        for job in self.world.jobs.values():
            for task in job.tasks:
                used.add(task.held.node)
                if task.place.status == "running":
                    held[_owner(job)] += _held_milli(task)
                elif task.place.status == "pending":
                    is_waited = True
        n_empty = len(self._with_gpus - used)
        self.meter.tell(held, self._capacity(), n_empty, is_waited=is_waited)

    def _capacity(self) -> int:
        return sum(amounts[GPU] for amounts in self.world.past.capacity.values())

    # Events.

    def _at(self, at_s: int, happen: Callable[[], bool]) -> None:
        """Schedule an action; it returns whether anything changed."""
        self._n_events += 1
        heappush(self._events, (at_s, self._n_events, happen))

    def _prepare(self) -> None:
        simulation = self.case.simulate
        for job in self.world.jobs.values():
            span = simulation.runs.get(job.spec.name)
            rng = Random(f"{simulation.seed}/{job.spec.name}")  # noqa: S311
            self._begin(job, draw_span(span, rng))
            for task in job.tasks:
                if task.place.status == "running":
                    self._start(task)
        for at in range(len(simulation.arrivals)):
            for at_s in arrival_times(simulation, at, self.end_s):
                self._at(at_s, lambda at=at: self._arrive(at))  # type: ignore[misc]
        for happening in simulation.events:
            self._at(int(happening.at), lambda each=happening: self._happen(each))  # type: ignore[misc]

    def _begin(self, job: RunJob, run_s: int | None) -> None:
        self.meter.count(_owner(job), "arrived")
        own, usual = job.spec.checkpoint, self.case.settings.checkpoint
        every_s, restart_s = int(usual if own is None else own), int(self.case.simulate.restart)
        for task in job.tasks:
            self._work[task.id] = TaskProgress(run_s, every_s, restart_s)

    def _arrive(self, at: int) -> bool:
        self._n_drawn[at] += 1
        arrival = draw(self.case.simulate, at, self._n_drawn[at])
        self.world.add([arrival.job])
        self._line_of[arrival.job.name] = at
        self._begin(self.world.jobs[arrival.job.name], arrival.run_s)
        return True

    def _happen(self, happening: Happening) -> bool:
        for name in happening.finish:
            for task in self._job_named(name).tasks:
                if task.place.status == "running":
                    self._work[task.id].finish(self.now_s)
            self.meter.count(_owner(self._job_named(name)), "ended")
            self.world.finish([name])
        for name, change in happening.set.items():
            before = self.world.jobs.get(name)
            owner = None if before is None else _owner(before)
            self.world.change(name, change)
            job = self.world.jobs[name]
            for task in job.tasks if _owner(job) != owner else ():
                self._work[task.id].since_s = self.now_s
        return True

    def _job_named(self, name: str) -> RunJob:
        job = self.world.jobs.get(name)
        if job is None:
            raise ScenarioError(f"{self.case.id}: finish: there is no job {name}")
        return job

    def _start(self, task: RunTask) -> None:
        """Start the task, and schedule its end unless it is stopped before."""
        work = self._work[task.id]
        end_s = work.start(task.started_at - NOW_S)
        if end_s is not None:
            n_stops = work.n_stops
            self._at(max(end_s, self.now_s), lambda: self._end(task, n_stops))

    def _end(self, task: RunTask, n_stops: int) -> bool:
        """Remove a task whose work is done, and its gang with it."""
        if self.world.tasks.get(task.id) is not task or self._work[task.id].n_stops != n_stops:
            return False
        job = self.world.jobs[task.id.partition("/")[0]]
        ending = [task] if job.tree.min_member <= 1 else list(job.tasks)
        for each in ending:
            if each.place.status == "running":
                lost_s = self._work[each.id].finish(self.now_s)
                self.meter.lose(_owner(job), lost_s * _held_milli(each))
            self.world.drop_task(each.id)
            del self._work[each.id]
        if job.spec.name not in self.world.jobs:
            self.meter.count(_owner(job), "ended")
            line = self._line_of.pop(job.spec.name, None)
            if line is not None and self._is_kept(line):
                self._arrive(line)
        return True

    def _is_kept(self, line: int) -> bool:
        arrivals = self.case.simulate.arrivals[line]
        is_over = arrivals.until is not None and self.now_s >= arrivals.until
        return arrivals.keep is not None and not is_over

    # Decisions.

    def _run_cycle(self) -> None:
        world, report = self.world, self.report
        report.cycles += 1
        outcome = run_cycle(world, report.cycles, lambda: 0)
        report.broken += self._judge(outcome)
        if self.watch is not None:
            self.watch(self.now_s, world, outcome)
        changed = list(outcome.changed())
        is_answer = self._n_seen != self._n_changes
        self._n_seen = self._n_changes
        for id_, before, after in changed:
            if before.status == "running" and (after.status == "evicted" or after.is_moved):
                self._stop(id_, is_move=after.is_moved, is_answer=is_answer)
        world.deadlines.note(outcome.plan, world.now_s)
        world.settle(outcome.after)
        for id_, _, after in changed:
            if after.status == "bound":
                self._note_start(world.tasks[id_])
        self._note_held()
        self._plan_next(outcome, has_changed=bool(changed))

    def _judge(self, outcome: Outcome) -> Iterator[str]:
        last = self._last if self._n_seen == self._n_changes else None
        self._last = outcome
        if self.judge is not None and len(self.report.broken) < _MOST_BROKEN:
            for finding in self.judge(self.world, outcome, last):
                yield f"{as_time(self.now_s)}: {finding}"

    def _plan_next(self, outcome: Outcome, *, has_changed: bool) -> None:
        if has_changed:
            unrest_s = self.now_s - self._changed_s
            self.report.longest_unrest_s = max(self.report.longest_unrest_s, unrest_s)
            self._pause_s = CYCLE_S
        self.report.came_to_rest = not has_changed
        is_waited = any(task.place.status == "pending" for task in self.world.tasks.values())
        if has_changed or is_waited or self._empties_nodes:
            self._due_s = self.now_s + self._pause_s
            for held in outcome.plan.held_back:
                soonest_s = max(self.now_s + CYCLE_S, held.until - NOW_S)
                self._due_s = min(self._due_s, soonest_s, self.now_s + CALM_S)
            self._pause_s = min(self.case.simulate.look_every, 2 * self._pause_s)
        else:
            self._due_s = None

    def _stop(self, id_: str, *, is_move: bool, is_answer: bool) -> None:
        task = self.world.tasks[id_]
        owner = _owner(self.world.jobs[id_.partition("/")[0]])
        lost_s = self._work[id_].stop(self.now_s)
        self.meter.stop(owner, id_, lost_s * _held_milli(task), is_move=is_move)
        self.report.evictions_without_change += not is_answer
        if not is_move:
            self._evicted_at[id_] = self._n_changes

    def _note_start(self, task: RunTask) -> None:
        owner = _owner(self.world.jobs[task.id.partition("/")[0]])
        self.meter.note_wait(owner, self.world.now_s - task.waits_since)
        if self._evicted_at.pop(task.id, None) == self._n_changes:
            self.report.evicted_and_back += 1
        self._start(task)

    def _finish(self) -> SimulationReport:
        report, meter = self.report, self.meter
        for job in self.world.jobs.values():
            for task in job.tasks:
                if task.place.status == "pending":
                    meter.count(_owner(job), "waiting")
                    meter.note_wait(_owner(job), self.world.now_s - task.waits_since)
        report.users, report.capacity = meter.users, self._capacity()
        report.idle, report.idle_while_waiting = meter.idle, meter.idle_while_waiting
        report.empty = meter.empty
        report.queues = dict(sorted(meter.queues.items()))
        simulation = self.case.simulate
        bars = simulation.at_most, simulation.at_least
        report.missed = list(misses(report.as_json(), *bars))
        return report


#: Limit on reported broken invariants; one is one too many.
_MOST_BROKEN: Final = 20


def _owner(job: RunJob) -> Owner:
    return job.spec.queue, job.spec.user


def _held_milli(task: RunTask) -> int:
    return sum(card.milli for card in task.place.cards) + task.demand.counted_milli


def as_time(seconds: int) -> str:
    """`1d 02:03:04`, since the start."""
    days, rest = divmod(seconds, _DAY_S)
    return f"{days}d {rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
