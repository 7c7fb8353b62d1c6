"""Sums of GpuUsage records: GPU-hours of a month, by project, and by user of one project.

A record holds, for one account and one day, milli-GPU-seconds of every hour (integers).
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

import msgspec

from extender.api.objects import ObjectMeta

_MILLI_SECONDS: Final = 3_600_000


class _Line(msgspec.Struct, rename="camel"):
    user: str = ""
    node_pool: str = ""
    held: list[int] = []
    lost: list[int] = []


class _OverQuota(msgspec.Struct, rename="camel"):
    held: list[int] = []


class _Spec(msgspec.Struct, rename="camel"):
    account: str = ""
    name: str = ""
    day: str = ""
    lines: list[_Line] = []
    over_quota: list[_OverQuota] = []


class UsageRecord(msgspec.Struct):
    """The projection of a GpuUsage."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: _Spec = msgspec.field(default_factory=_Spec)


class UsageSum(msgspec.Struct):
    """GPU-hours of a project or of one of its users; `borrowed` (held above quota) is known for
    projects only, `lost` is work lost by evictions."""

    name: str
    held: float = 0.0
    borrowed: float = 0.0
    lost: float = 0.0


def by_project(records: Iterable[UsageRecord]) -> list[UsageSum]:
    """A line for each project; the largest holder first."""
    sums: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for spec in _projects(records):
        figures = sums[spec.name]
        figures[0] += sum(sum(line.held) for line in spec.lines)
        figures[1] += sum(sum(each.held) for each in spec.over_quota)
        figures[2] += sum(sum(line.lost) for line in spec.lines)
    return _sums(sums)


def by_user(records: Iterable[UsageRecord], project: str) -> list[UsageSum]:
    """A line for each user of the project."""
    sums: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for spec in _projects(records):
        for line in spec.lines if spec.name == project else ():
            sums[line.user][0] += sum(line.held)
            sums[line.user][2] += sum(line.lost)
    return _sums(sums)


def _projects(records: Iterable[UsageRecord]) -> Iterable[_Spec]:
    """Only the projects' records: those of node pools count the same amounts again."""
    return (record.spec for record in records if record.spec.account == "Project")


def _sums(sums: dict[str, list[int]]) -> list[UsageSum]:
    lines = (
        UsageSum(name, *(each / _MILLI_SECONDS for each in found)) for name, found in sums.items()
    )
    return sorted(lines, key=lambda line: (-line.held, line.name))
