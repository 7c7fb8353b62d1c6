"""The fault that kills our programs at one write after another, under load.

A point is a program, a side of a write (before or after it), and the number of that write since the
program's start. Points that were tried least come first.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Final, NamedTuple

from tests.faults.load import DOWN
from tests.faults.stage import NotDoneError, Stage

#: Numbers of the writes at which a program is killed; the load causes 2 to 300 of each kind a
#: minute.
OFTEN: Final = (1, 2, 5, 10)
SOMETIMES: Final = (1, 2)
SELDOM: Final = (1,)
CONTROL_WRITES: Final = {
    "PATCH leases": OFTEN,
    "PATCH gpunodes": OFTEN,
    "PATCH pods": OFTEN,
    "PATCH gpuprojects/status": OFTEN,
    "PATCH gpudepartments/status": OFTEN,
    "PATCH gpuusages": OFTEN,
    "POST events": SOMETIMES,
    "POST pods/eviction": SOMETIMES,
    "PATCH gpupodgroups/status": SOMETIMES,
    "POST gpupodgroups": SELDOM,
    "PATCH pods/status": SELDOM,
}
SERVE_WRITES: Final = {"POST pods/binding": OFTEN}
SIDES: Final = ("before", "after")
#: Duration of the fault: less than the time for which a gang may be incomplete.
CRASHING_S: Final = 25.0
#: Longest duration until the first crash: on a busy machine a start may take longer than the fault.
FIRST_CRASH_S: Final = 90.0
#: How long a controller leads before its point is given up.
REACHED_S: Final = 5.0
#: How long the extender runs between two crashes, since it has few points.
WORKS_S: Final = 10.0
POLL_S: Final = 0.3


class Point(NamedTuple):
    """A point; `of` is "control" for any controller, or "serve"."""

    of: str
    failpoint: str

    def __str__(self) -> str:
        return f"{self.of} {self.failpoint}"


POINTS: Final = tuple(
    Point(of, f"{side} {write}:{nth}")
    for of, writes in (("control", CONTROL_WRITES), ("serve", SERVE_WRITES))
    for write, times in writes.items()
    for side in SIDES
    for nth in times
)
#: Program -> `of` of its points.
CRASHING: Final = {"control": "control", "other": "control", "serve": "serve"}


async def crash_at_writes(stage: Stage, random: Random) -> str:
    """Both controllers and the extender crash repeatedly at their writes."""
    before = stage.crashes.total()
    began_s = time.monotonic()

    def goes_on() -> bool:
        is_without = stage.crashes.total() == before
        return time.monotonic() < began_s + (FIRST_CRASH_S if is_without else CRASHING_S)

    try:
        async with asyncio.TaskGroup() as loops:
            for name in CRASHING:
                loops.create_task(_crash(stage, random, name, goes_on))
    finally:
        for name in CRASHING:
            await _start_unarmed(stage, name)
    n_crashes = stage.crashes.total() - before
    if not n_crashes:
        raise NotDoneError("no program reached its point")
    return f"{n_crashes} crashes"


async def _crash(stage: Stage, random: Random, name: str, goes_on: Callable[[], bool]) -> None:
    points = [point for point in POINTS if point.of == CRASHING[name]]
    while goes_on():
        point = min(points, key=lambda each: (stage.armed[str(each)], random.random()))
        stage.armed[str(point)] += 1
        await asyncio.to_thread(stage.start_armed, name, point.failpoint)
        if await _has_ended(stage, name, goes_on):
            if stage.programs[name].was_killed:
                stage.crashes[str(point)] += 1
            else:
                stage.ended.append(name)
        if name == "serve":
            await _start_unarmed(stage, name)
            await asyncio.sleep(WORKS_S)


async def _has_ended(stage: Stage, name: str, goes_on: Callable[[], bool]) -> bool:
    """Whether the program reached its point, or is a controller that has led for `REACHED_S`
    without reaching it. The time to start and to become leader does not count."""
    program, left_s = stage.programs[name], REACHED_S
    first = await _term(stage)
    while program.is_alive and goes_on() and left_s > 0:
        await asyncio.sleep(POLL_S)
        term = await _term(stage)
        if term != first and term.startswith(f"{name} "):
            left_s -= POLL_S
    return not program.is_alive


async def _term(stage: Stage) -> str:
    """The name of the leader and the number of its term; empty if unknown."""
    with suppress(*DOWN):
        return await asyncio.to_thread(stage.term)
    return ""


async def _start_unarmed(stage: Stage, name: str) -> None:
    await asyncio.to_thread(stage.kill, name)
    await asyncio.to_thread(stage.start, name)
