"""Which jobs arrive when: as listed in the file, or drawn with its seed.

The n-th job of a line does not depend on decisions: it is drawn from the seed, the line and n.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from msgspec.structs import replace

from extender.scenario.model.jobs import Job
from extender.scenario.model.simulation import Arrivals, Simulation, Span

_DAY_S = 86_400


@dataclass(slots=True, frozen=True)
class Arrival:
    """A job, and the seconds of work of each of its tasks; None: it never ends."""

    job: Job
    run_s: int | None


def arrival_times(simulation: Simulation, at: int, end_s: int) -> Iterator[int]:
    """Arrival times of the line's jobs, in seconds from the start; with `keep`, the first ones."""
    line = simulation.arrivals[at]
    until_s = min(end_s, int(line.until) if line.until is not None else end_s)
    if line.at is not None:
        for n in range(line.count):
            now_s = int(line.at + n * (line.every or 0))
            if now_s < until_s:
                yield now_s
    elif line.keep is not None:
        yield from [int(line.from_)] * line.keep
    elif line.per_day is not None:
        rng = Random(f"{simulation.seed}/{at}")  # noqa: S311
        passed = float(line.from_)
        while (passed := passed + rng.expovariate(line.per_day / _DAY_S)) < until_s:
            yield int(passed)


def draw(simulation: Simulation, at: int, n: int) -> Arrival:
    """The n-th job of the line, counted from 1."""
    line = simulation.arrivals[at]
    rng = Random(f"{simulation.seed}/{at}/{n}")  # noqa: S311
    run_s = draw_span(line.run, rng)
    return Arrival(_drawn_job(line, n, rng), run_s)


def draw_span(span: Span | None, rng: Random) -> int | None:
    """A number of seconds within the span."""
    if span is None:
        return None
    low, high = span if isinstance(span, list) else (span, span)
    return rng.randint(int(low), int(high))


def _drawn_job(line: Arrivals, n: int, rng: Random) -> Job:
    job = replace(line.job, name=f"{line.job.name}-{n}")
    if line.gpu:
        gpu = rng.choice(line.gpu)
        job = replace(job, tasks=[replace(task, gpu=gpu) for task in job.tasks])
    if line.priority:
        job = replace(job, priority=rng.choice(line.priority))
    if line.user:
        job = replace(job, user=rng.choice(line.user))
    return job
