"""Runs a case: cycles, settling between them, and the comparison with its expectations."""

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from traceback import extract_tb
from typing import Any, Literal

from extender.policy.decide import decide
from extender.scenario.clock import pass_time
from extender.scenario.errors import ScenarioError
from extender.scenario.expect import Reading, excess
from extender.scenario.model.case import Case, Step
from extender.scenario.model.expectations import Expectation
from extender.scenario.narrative import Story, tell
from extender.scenario.outcome import Outcome, decision, read_plan
from extender.scenario.snapshot import settings_now, take_snapshot
from extender.scenario.world import World

#: A monotonic clock in nanoseconds.
Clock = Callable[[], int]
#: Writes one line of decisions.
Write = Callable[[dict[str, Any]], None]
Result = Literal["passed", "failed", "skipped"]
#: Returns sentences about errors in a decided cycle, given the world before the cycle, its outcome,
#: and the outcome of the cycle before if nothing changed between the two.
Judge = Callable[[World, Outcome, Outcome | None], Iterable[str]]


@dataclass(slots=True)
class Report:
    """The result of one case: `reasons` are sentences on why it failed or was skipped.

    `is_unusable`: the case contradicts itself.
    """

    id: str
    result: Result
    reasons: list[str] = field(default_factory=list)
    is_unusable: bool = False


def run_case(
    case: Case, clock: Clock, write: Write | None = None, judge: Judge | None = None
) -> Report:
    """Run the case and compare it with its expectations.

    `write` gets the decisions of each cycle. Findings of `judge` also fail the case. A case that
    contradicts itself, or on which deciding breaks, has failed; other cases are not affected.
    """
    if case.is_out_of_format:
        return Report(case.id, "skipped", ["it needs something that the format cannot express"])
    report = Report(case.id, "passed")
    try:
        for finding in _Run(case, clock, write, judge).differences():
            report.reasons.append(finding)
    except ScenarioError as error:
        report.is_unusable = True
        report.reasons.append(str(error))
    except Exception as error:
        report.reasons.append(_broken_deciding(error))
    if report.reasons:
        report.result = "failed"
    return report


def run_cycle(world: World, cycle: int, clock: Clock) -> Outcome:
    """Decide once on the current world, without changing it."""
    snapshot = take_snapshot(world)
    settings = settings_now(world)
    started = clock()
    plan = decide(snapshot, settings)
    took_us = (clock() - started) // 1000
    outcome = read_plan(world, plan, cycle)
    outcome.took_us = took_us
    return outcome


def take_step(world: World, outcome: Outcome, step: Step) -> None:
    """Settle the cycle's decision, let time pass, then end, change and add jobs."""
    world.deadlines.note(outcome.plan, world.now_s)
    world.settle(outcome.after)
    pass_time(world, world.whole_seconds(step.after))
    world.finish(step.finish)
    for name, change in step.set.items():
        world.change(name, change)
    world.add(step.add)


@dataclass(slots=True)
class _Run:
    """The run of one case. `cycle` is the last decided cycle, `last` its outcome, unless jobs were
    added or dropped since."""

    case: Case
    clock: Clock
    write: Write | None
    judge: Judge | None
    cycle: int = 0
    last: Outcome | None = None

    def differences(self) -> Iterator[str]:
        case, world = self.case, _world_of(self.case)
        if case.rounds.is_single:
            outcome = yield from self._cycle(world, case.expect)
            yield from Reading(world, outcome.after, outcome).differences(case.expect)
            yield from self._steps(world, outcome)
            return
        for _ in range(case.rounds.until):
            outcome = yield from self._cycle(world, case.expect)
            world.settle(outcome.after)
        yield from Reading(world, world.places(), outcome).differences(case.expect)
        for _ in range(case.rounds.after):
            outcome = yield from self._cycle(world, case.expect)
            reading = Reading(world, outcome.after, outcome)
            for finding in reading.differences(case.expect):
                yield f"cycle {self.cycle}: {finding}"
            world.settle(outcome.after)

    def _steps(self, world: World, outcome: Outcome) -> Iterator[str]:
        for at, step in enumerate(self.case.steps):
            take_step(world, outcome, step)
            if step.after or step.finish or step.set or step.add:
                self.last = None
            outcome = yield from self._cycle(world, step.expect)
            for finding in Reading(world, outcome.after, outcome).differences(step.expect):
                yield f"step {at + 1}: {finding}"

    def _cycle(self, world: World, expect: Expectation) -> Generator[str, None, Outcome]:
        self.cycle += 1
        outcome = run_cycle(world, self.cycle, self.clock)
        if self.write is not None:
            self.write(decision(self.case, world, outcome))
        yield from excess(outcome, expect.at_most)
        for finding in self.judge(world, outcome, self.last) if self.judge else ():
            yield f"cycle {self.cycle}: {finding}"
        self.last = outcome
        return outcome


def stories(case: Case, clock: Clock) -> Iterator[Story]:
    """The story of each cycle of the case; raises ScenarioError, also if deciding breaks."""
    try:
        yield from _stories(case, clock)
    except ScenarioError:
        raise
    except Exception as error:
        raise ScenarioError(f"{case.id}: {_broken_deciding(error)}") from error


def _stories(case: Case, clock: Clock) -> Iterator[Story]:
    world = _world_of(case)
    outcome = run_cycle(world, 1, clock)
    yield tell(world, outcome)
    single = case.rounds.is_single
    n_more = len(case.steps) if single else case.rounds.until + case.rounds.after - 1
    for at in range(n_more):
        if single:
            take_step(world, outcome, case.steps[at])
        else:
            world.settle(outcome.after)
        outcome = run_cycle(world, at + 2, clock)
        yield tell(world, outcome)


def _world_of(case: Case) -> World:
    """The case's initial world; raises ScenarioError if it contradicts itself."""
    if case.steps and not case.rounds.is_single:
        raise ScenarioError(f"{case.id}: steps need rounds of {{until: 1, after: 0}}")
    return World.of(case)


def _broken_deciding(error: Exception) -> str:
    """A sentence about a bug: what, and where."""
    frame = extract_tb(error.__traceback__)[-1]
    where = f"{Path(frame.filename).name}:{frame.lineno}"
    return f"the decision failed in {where}: {type(error).__name__}: {error}"
