"""Figures of the installed programs: writes and CPU time per second, and memory."""

from collections.abc import Sequence
from typing import Final

from tests.bench.cost import Cost
from tests.bench.figures import Figure
from tests.bench.latency import rss_mib
from tests.support.installation import Program

#: Prefix of the accounts of our programs.
OURS: Final = "ballast-"


def per_second(what: str, cost: Cost, took_s: float, bar: float | None) -> list[Figure]:
    """Ballast's writes to the API server, and the CPU time of each program, per second."""
    writes = {key: len(at) for key, at in cost.writes.items() if key[0].startswith(OURS)}
    total = rate(sum(writes.values()), took_s)
    return [
        Figure(f"writes per second, {what}", total, "writes/s", bar),
        *(
            Figure(f"  {user}: {of}", rate(n, took_s), "writes/s")
            for (user, of), n in sorted(writes.items())
        ),
        *(
            Figure(f"CPU of {name}, {what}", rate(1000 * spent, took_s), "ms/s")
            for name, spent in cost.cpu_s.items()
        ),
    ]


def resident(what: str, programs: Sequence[Program], bar_mib: float) -> list[Figure]:
    """The memory of these programs."""
    memory = {each.name: rss_mib(each) for each in programs}
    return [
        Figure(f"memory of all programs, {what}", sum(memory.values()), "MiB", bar_mib),
        *(Figure(f"  {name}", mib, "MiB") for name, mib in memory.items()),
    ]


def rate(amount: float, took_s: float) -> float:
    """The amount per second."""
    return round(amount / took_s, 2)
