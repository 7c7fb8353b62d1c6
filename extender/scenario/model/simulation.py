"""Long runs of a scenario file: arrivals and timed changes."""

from typing import Annotated

from msgspec import Meta, field

from extender.scenario.model.jobs import Change, Job
from extender.scenario.model.values import Amount, Count, Rank, Seconds, Written

#: A number, or the bounds of a random one.
Span = Seconds | Annotated[list[Seconds], Meta(min_length=2, max_length=2)]


class Arrivals(Written, frozen=True, kw_only=True):
    """Jobs that arrive during a simulation, like `job`; its name is their prefix.

    Each has `run` seconds of work (None: it never ends). The times are given by one of `at` (with
    `every` and `count`), `per_day` and `keep`. Of each list one value is drawn for each job.
    """

    job: Job
    at: Seconds | None = None
    every: Seconds | None = None
    count: Count = 1
    per_day: Annotated[float, Meta(gt=0, le=100_000)] | None = None
    keep: Count | None = None
    from_: Seconds = field(default=0, name="from")
    until: Seconds | None = None
    run: Span | None = None
    gpu: list[Amount] = []
    priority: list[Rank] = []
    user: list[str] = []


class Happening(Written, frozen=True, kw_only=True):
    """Changes at one moment of a simulation, as in a step."""

    at: Seconds
    finish: list[str] = []
    set: dict[str, Change] = {}


class Simulation(Written, frozen=True, kw_only=True):
    """A long run. `runs` are the seconds of work of initial `jobs`; jobs without one run until the
    end. Bars are figures of the report, by their path."""

    days: Annotated[float, Meta(gt=0, le=3660)] = 1
    seed: int = 0
    restart: Seconds = 0
    look_every: Count = 60
    runs: dict[str, Span] = {}
    arrivals: list[Arrivals] = []
    events: list[Happening] = []
    at_most: dict[str, float] = {}
    at_least: dict[str, float] = {}
