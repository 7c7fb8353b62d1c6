"""Checks a case for invalid amounts, each reported with its place in the file."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from msgspec import UNSET, Struct

from extender.api.units import UnitError
from extender.scenario import amounts
from extender.scenario.model.case import Case
from extender.scenario.model.expectations import Expectation
from extender.scenario.model.jobs import Job
from extender.scenario.model.queues import Figures, Queue, QueuePool

Read = Callable[[Any], object]

#: Limits for one node or task: a million of them stay below the value that means unlimited.
_MOST_CPU_MILLI: Final = 10**9
_MOST_BYTES: Final = 1 << 50


def _bounded(read: Callable[[Any], int], most: int, accepted: str) -> Read:
    """`read` that refuses values above `most`."""

    def read_bounded(value: Any) -> int:
        found = read(value)
        if found > most:
            raise UnitError(f"{value} is too much; accepted: up to {accepted}")
        return found

    return read_bounded


_NODE: Final[dict[str, Read]] = {
    "cpu": _bounded(amounts.cpu, _MOST_CPU_MILLI, "1000000"),
    "memory": _bounded(amounts.quantity, _MOST_BYTES, "1Pi"),
}
_TASK: Final[dict[str, Read]] = {"gpu": amounts.gpus, **_NODE}
_CARDS: Final[dict[str, Read]] = {"gpus": amounts.cards}
_SHARE: Final[dict[str, Read]] = {
    "gpu": amounts.gpus,
    "cpu": amounts.cpu,
    "memory": amounts.quantity,
}
_USAGE: Final[dict[str, Read]] = dict.fromkeys(_TASK, amounts.fraction)


def wrong_amounts(case: Case) -> Iterator[str]:
    """One sentence for each invalid amount."""
    yield from _look("settings", "usageWeight", case.settings.usage_weight, amounts.fraction)
    for at, node in enumerate(case.nodes):
        yield from _fields(f"nodes[{at}]", node, _CARDS | _NODE)
    for at, queue in enumerate(case.queues):
        yield from _in_queue(f"queues[{at}]", queue)
    yield from _in_jobs("jobs", case.jobs)
    for at, line in enumerate(case.simulate.arrivals):
        place = f"simulate.arrivals[{at}]"
        yield from _in_jobs(f"{place}.job", [line.job])
        for value_at, value in enumerate(line.gpu):
            yield from _look(place, f"gpu[{value_at}]", value, amounts.gpus)
    yield from _expected("expect", case.expect)
    for at, step in enumerate(case.steps):
        yield from _in_jobs(f"steps[{at}].add", step.add)
        yield from _expected(f"steps[{at}].expect", step.expect)


def _in_queue(place: str, queue: Queue) -> Iterator[str]:
    yield from _fields(f"{place}.usage", queue.usage, _USAGE)
    own = QueuePool(gpu=queue.gpu, cpu=queue.cpu, memory=queue.memory)
    pools = {f"{place}.pools[{name}]": pool for name, pool in queue.pools.items()}
    for where, pool in {place: own, **pools}.items():
        yield from _in_figures(f"{where}.gpu", pool.gpu, amounts.gpus)
        used = pool.gpu.gpu_hours_used
        yield from _look(f"{where}.gpu", "gpuHoursUsed", used, amounts.fraction)
        yield from _in_figures(f"{where}.cpu", pool.cpu, amounts.cpu)
        yield from _in_figures(f"{where}.memory", pool.memory, amounts.quantity)


def _in_figures(place: str, figures: Figures, read: Read) -> Iterator[str]:
    bounds = {"quota": read, "limit": read}
    for fault in _fields(place, figures, bounds):
        yield f"{fault}, or null: unlimited"
    yield from _fields(place, figures, {"weight": amounts.fraction})


def _in_jobs(place: str, jobs: Iterable[Job]) -> Iterator[str]:
    for at, job in enumerate(jobs):
        for task_at, task in enumerate(job.tasks):
            yield from _fields(f"{place}[{at}].tasks[{task_at}]", task, _TASK)


def _expected(place: str, expected: Expectation) -> Iterator[str]:
    for name, job in expected.jobs.items():
        yield from _look(f"{place}.jobs[{name}]", "gpus", job.gpus, amounts.gpus)
    for name, share in expected.fair_share.items():
        yield from _fields(f"{place}.fairShare[{name}]", share, _SHARE)


def _fields(place: str, of: Struct, fields: dict[str, Read]) -> Iterator[str]:
    for name, read in fields.items():
        yield from _look(place, name, getattr(of, name), read)


def _look(place: str, name: str, value: object, read: Read) -> Iterator[str]:
    if value is None or value is UNSET:
        return
    try:
        read(value)
    except UnitError as error:
        yield f"{place}.{name}: {error}"
