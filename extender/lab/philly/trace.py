"""The Philly extract as jobs and quotas: which jobs are replayed, and each tenant's quota.

The protocol is that of the replay note: jobs submitted from 2017-10-01 to 2017-11-30; a virtual
cluster (VC) is one tenant; its quota is whole nodes by its share of GPU time; jobs larger than
their tenant's quota are left out, because a private partition could never run them.
"""

import calendar
import csv
import dataclasses
import gzip
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Final

from msgspec import Struct, structs

JOBS_FILE: Final = "philly_jobs.csv.gz"
COLUMNS: Final = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
GPUS_PER_NODE: Final = 8
SECONDS_PER_DAY: Final = 86_400
SHAKE_S: Final = 60
#: First second of 2017-10-01. The trace has local times without a zone; they are read as UTC.
WINDOW_START_S: Final = calendar.timegm((2017, 10, 1, 0, 0, 0))
WINDOW_DAYS: Final = 61
#: The days over which utilisation is measured: the cluster has filled, and arrivals have not
#: declined.
STEADY_DAYS: Final = (4, 48)


class TraceError(Exception):
    """The data cannot be replayed as requested; the message says what is accepted."""


class TraceJob(Struct, frozen=True, gc=False):
    """One job of the trace: `number` counts in order of submission, times are unix seconds."""

    number: int
    tenant: str
    submit_s: int
    run_s: int
    gpus: int


@dataclass(slots=True, frozen=True)
class PhillyTrace:
    """The input of a replay: jobs in order of submission, and nodes per tenant (`nodes` in all).

    `days` are the first and last day of submission, counted from 1 = 2017-10-01.
    """

    jobs: Sequence[TraceJob]
    quota_nodes: Mapping[str, int]
    nodes: int
    days: tuple[int, int]
    n_dropped: int = 0

    @property
    def gpus(self) -> int:
        """GPUs of the cluster."""
        return self.nodes * GPUS_PER_NODE

    def quota_gpus(self, tenant: str) -> int:
        """GPUs of the tenant's quota."""
        return self.quota_nodes[tenant] * GPUS_PER_NODE

    @property
    def steady_s(self) -> tuple[int, int]:
        """Start and end of the time over which utilisation is measured, within `days`."""
        first, last = (max(self.days[0], STEADY_DAYS[0]), min(self.days[1], STEADY_DAYS[1]))
        if first > last:
            first, last = self.days
        return day_start_s(first), day_start_s(last + 1)


def day_start_s(day: int) -> int:
    """Unix second at which the day begins; day 1 is 2017-10-01."""
    return WINDOW_START_S + (day - 1) * SECONDS_PER_DAY


def load_trace(folder: Path, nodes: int, days: tuple[int, int] = (1, WINDOW_DAYS)) -> PhillyTrace:
    """The jobs of `days`, with quotas for `nodes` nodes that are computed over the whole window.

    Raises TraceError if the folder, a row or a figure is invalid.
    """
    if not 1 <= days[0] <= days[1] <= WINDOW_DAYS:
        raise TraceError(
            f"days {days[0]}-{days[1]}: wants FIRST-LAST within 1-{WINDOW_DAYS} (1 = 2017-10-01)"
        )
    return make_trace(_read_window(folder), nodes, days)


def make_trace(
    window: Sequence[TraceJob], nodes: int, days: tuple[int, int] = (1, WINDOW_DAYS)
) -> PhillyTrace:
    """The trace of the jobs in `window`; jobs larger than their tenant's quota are dropped."""
    quota = share_nodes(_gpu_seconds(window), nodes)
    start, end = day_start_s(days[0]), day_start_s(days[1] + 1)
    kept: list[TraceJob] = []
    dropped = 0
    for job in window:
        if not start <= job.submit_s < end:
            continue
        if job.gpus > quota.get(job.tenant, 0) * GPUS_PER_NODE:
            dropped += 1
        else:
            kept.append(job)
    if not kept:
        raise TraceError(f"no job was submitted on days {days[0]}-{days[1]}")
    return PhillyTrace(kept, quota, nodes, days, dropped)


def shaken(trace: PhillyTrace, seed: int) -> PhillyTrace:
    """The trace with every submission up to a minute later, drawn by `seed`; seed 0: unchanged.

    Which job gets which free card is chance, and small changes grow: several seeds show the random
    variation of a figure.
    """
    if seed == 0:
        return trace
    draw = Random(seed)  # noqa: S311 - repeatable, not secret
    moved = [(job.submit_s + draw.randrange(SHAKE_S), job) for job in trace.jobs]
    moved.sort(key=lambda entry: entry[0])
    jobs = [
        structs.replace(job, number=number, submit_s=submit_s)
        for number, (submit_s, job) in enumerate(moved)
    ]
    return dataclasses.replace(trace, jobs=jobs)


def _gpu_seconds(jobs: Iterable[TraceJob]) -> dict[str, int]:
    """GPU-seconds that each tenant's jobs run."""
    found: dict[str, int] = {}
    for job in jobs:
        found[job.tenant] = found.get(job.tenant, 0) + job.run_s * job.gpus
    return found


def share_nodes(weights: Mapping[str, int], nodes: int) -> dict[str, int]:
    """`nodes` whole nodes divided by weight, by largest remainder, each tenant with at least one.

    Shares are in tenths of a percent, as in the note: a tenant below half of one has no share and
    so no quota. A tenant that gets its one node by the minimum keeps its remainder. The result sums
    to `nodes`; the larger share wins a tie, then the first name.
    """
    total = sum(weights.values())
    tenths = {name: (2000 * weight + total) // (2 * total) for name, weight in weights.items()}
    tenths = {name: share for name, share in tenths.items() if share}
    if len(tenths) > nodes:
        raise TraceError(f"{nodes} nodes: wants at least {len(tenths)}, one for each tenant")
    whole = sum(tenths.values())
    quota = {name: max(1, nodes * share // whole) for name, share in tenths.items()}
    by_rest = sorted(
        tenths, key=lambda name: (-(nodes * tenths[name] % whole), -tenths[name], name)
    )
    left = nodes - sum(quota.values())
    for name in by_rest[: max(0, left)]:
        quota[name] += 1
    # With few nodes, those given beyond the shares come from the tenant that has the most.
    for _ in range(-left):
        richest = max(sorted(quota), key=lambda name: quota[name])
        quota[richest] -= 1
    return dict(sorted(quota.items(), key=lambda entry: (-entry[1], -tenths[entry[0]], entry[0])))


def _read_window(folder: Path) -> list[TraceJob]:
    """All jobs submitted in the window, in order of submission (equal times as in the file)."""
    path = folder / JOBS_FILE
    if not path.is_file():
        raise TraceError(f"{path}: no such file; --data wants the folder that holds {JOBS_FILE}")
    found: list[tuple[int, int, int, str]] = []
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as text:
            rows = csv.reader(text)
            header = tuple(next(rows, ()))
            if header != COLUMNS:
                raise TraceError(f"{path}: wants the columns {','.join(COLUMNS)}, has {header}")
            for row in filter(None, rows):
                entry = _read_row(path, rows.line_num, row)
                if day_start_s(1) <= entry[0] < day_start_s(WINDOW_DAYS + 1):
                    found.append(entry)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        raise TraceError(f"{path}: wants a gzipped CSV file: {error}") from error
    found.sort(key=lambda entry: entry[0])
    return [
        TraceJob(number=number, tenant=tenant, submit_s=submit_s, run_s=run_s, gpus=gpus)
        for number, (submit_s, run_s, gpus, tenant) in enumerate(found)
    ]


def _read_row(path: Path, line: int, row: Sequence[str]) -> tuple[int, int, int, str]:
    """(submit, run seconds, GPUs, tenant) of one row."""
    try:
        stamp, duration, gpus, _, tenant = row
        submit_s = calendar.timegm(datetime.fromisoformat(stamp).timetuple())
        run_s, n_gpus = round(float(duration)), int(gpus)
    except (ValueError, OverflowError) as error:
        raise TraceError(f"{path}:{line}: {','.join(row)}: {error}") from error
    if run_s < 1 or n_gpus < 1 or not tenant:
        raise TraceError(
            f"{path}:{line}: wants a duration and num_gpus of at least 1, and a cluster"
        )
    return submit_s, run_s, n_gpus, tenant
