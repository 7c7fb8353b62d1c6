"""CPU use of other programs during a benchmark, by which figures of a busy machine are marked."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.bench.figures import Figure

_TICKS: Final = os.sysconf("SC_CLK_TCK")
#: Fields of a process in /proc/PID/stat after its name, as in proc(5): its parent, and CPU ticks in
#: user and system mode, its own and those of its children that ended and were waited for.
_PARENT: Final = 1
_SPENT: Final = slice(11, 15)
#: Fields of /proc/stat that are no work (idle, iowait), and those included in other fields.
_IDLE: Final = (3, 4)
_WORK_FIELDS: Final = 8


def beside_others(measure: Callable[[], list[Figure]]) -> list[Figure]:
    """The figures, each with the cores that other programs used meanwhile."""
    foreign = Foreign()
    figures = measure()
    cores = foreign.cores()
    return [replace(figure, foreign_cores=cores) for figure in figures]


class Foreign:
    """Counts the CPU time of all processes except this one and its descendants, from now on."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._busy_s = _busy_s()
        self._ours_s = tree_cpu_s(os.getpid())

    def cores(self) -> float:
        """The average number of cores that other processes used."""
        took_s = time.monotonic() - self._began_s
        foreign_s = (_busy_s() - self._busy_s) - (tree_cpu_s(os.getpid()) - self._ours_s)
        return round(max(0.0, foreign_s / took_s), 2)


def _busy_s() -> float:
    """CPU seconds of the machine since its start."""
    ticks = [int(each) for each in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return sum(each for at, each in enumerate(ticks[:_WORK_FIELDS]) if at not in _IDLE) / _TICKS


def tree_cpu_s(root: int) -> float:
    """CPU seconds of a process and all its descendants, including ended ones."""
    parents: dict[int, int] = {}
    spent_s: dict[int, float] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        parents[int(folder.name)] = int(fields[_PARENT])
        spent_s[int(folder.name)] = sum(map(int, fields[_SPENT])) / _TICKS
    return sum(spent for pid, spent in spent_s.items() if _is_below(pid, root, parents))


def _is_below(pid: int, root: int, parents: dict[int, int]) -> bool:
    while pid not in (root, 0):
        pid = parents.get(pid, 0)
    return pid == root
