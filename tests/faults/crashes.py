"""The fault that kills our programs at their writes, one write after another, under the load.

A point is a program, a side of a write, and how often the program has made that write since it was
started. The points that were tried least come first, so that all get their turn.
"""

import asyncio
import time
from collections.abc import Sequence
from random import Random
from typing import Final, NamedTuple

from tests.faults.stage import Stage

#: Writes of the controller that leads and of the extender which the load brings about.
CONTROL_WRITES: Final = (
    "PATCH leases",
    "PATCH gpunodes",
    "PATCH pods",
    "PATCH pods/status",
    "POST pods/eviction",
    "PATCH nodes/status",
    "PATCH gpuprojects/status",
    "PATCH gpudepartments/status",
    "PATCH gpunodepools/status",
    "PATCH gpupodgroups/status",
    "POST gpupodgroups",
    "DELETE gpupodgroups",
    "PATCH gpuusages",
    "POST events",
)
SERVE_WRITES: Final = ("POST pods/binding",)
#: The first write of a life, one after it, and one in the middle of a gang.
TIMES: Final = (1, 2, 5)
SIDES: Final = ("before", "after")
#: How long the fault goes on, and how long a program may need to start and reach a point.
CRASHING_S: Final = 60.0
REACHED_S: Final = 12.0
POLL_S: Final = 0.05


class Point(NamedTuple):
    """`of` is "control" for whichever controller leads, or "serve"."""

    of: str
    failpoint: str

    def __str__(self) -> str:
        return f"{self.of} {self.failpoint}"


POINTS: Final = tuple(
    Point(of, f"{side} {write}:{time}")
    for of, writes in (("control", CONTROL_WRITES), ("serve", SERVE_WRITES))
    for write in writes
    for side in SIDES
    for time in TIMES
)


async def crash_at_writes(stage: Stage, random: Random) -> str:
    """A minute in which the leader and the extender crash again and again, each at its writes."""
    before = stage.crashes.total()
    ends_s = time.monotonic() + CRASHING_S
    try:
        async with asyncio.TaskGroup() as loops:
            for of in ("control", "serve"):
                points = [point for point in POINTS if point.of == of]
                loops.create_task(_crash(stage, random, points, ends_s))
    finally:
        for name in ("control", "other", "serve"):
            await asyncio.to_thread(_start_unarmed, stage, name)
    return f"{stage.crashes.total() - before} crashes"


async def _crash(stage: Stage, random: Random, points: Sequence[Point], ends_s: float) -> None:
    while time.monotonic() < ends_s:
        point = min(points, key=lambda each: (stage.armed[str(each)], random.random()))
        stage.armed[str(point)] += 1
        name = "serve" if point.of == "serve" else await asyncio.to_thread(stage.leader)
        await asyncio.to_thread(stage.start_armed, name, point.failpoint)
        deadline_s = time.monotonic() + REACHED_S
        while stage.programs[name].is_alive and time.monotonic() < deadline_s:
            await asyncio.sleep(POLL_S)
        if not stage.programs[name].is_alive:
            stage.crashes[str(point)] += 1


def _start_unarmed(stage: Stage, name: str) -> None:
    stage.kill(name)
    stage.start(name)
