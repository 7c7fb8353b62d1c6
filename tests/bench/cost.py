"""What a run costs: CPU seconds of every process, and writes to the API server by who makes them.

CPU comes from /proc, writes from the API server's audit log. Pods are created before a `Meter`
starts, so their creation is not in its figures.
"""

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_WRITES: Final = ("create", "update", "patch", "delete")
#: What a kubelet writes is the same beside any scheduler.
_KUBELETS: Final = "kwok"


@dataclass(slots=True, frozen=True)
class Cost:
    """Of one run: CPU seconds by process, writes by user and resource."""

    cpu_s: Mapping[str, float]
    writes: Mapping[tuple[str, str], int]

    @property
    def total_cpu_s(self) -> float:
        """CPU seconds of all processes."""
        return sum(self.cpu_s.values())

    @property
    def n_writes(self) -> int:
        """Writes of all that is not a kubelet."""
        return sum(n for (user, _), n in self.writes.items() if user != _KUBELETS)


class Meter:
    """Counts from now on what these processes, by name, take and what is written."""

    def __init__(self, pids: Mapping[str, int], audit_log: Path) -> None:
        self._pids = dict(pids)
        self._audit_log = audit_log
        self._from = {name: cpu_s(pid) for name, pid in self._pids.items()}
        self._offset = audit_log.stat().st_size

    def read(self) -> Cost:
        """What it came to so far."""
        spent = {name: cpu_s(pid) - self._from[name] for name, pid in self._pids.items()}
        with self._audit_log.open("rb") as log:
            log.seek(self._offset)
            return Cost(spent, count_writes(log.read()))


def cpu_s(pid: int) -> float:
    """User and system CPU seconds that the process has taken, all threads; 0 once it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def count_writes(lines: bytes) -> Counter[tuple[str, str]]:
    """Writes that were answered, by user and resource, in whole lines of an audit log."""
    counts: Counter[tuple[str, str]] = Counter()
    for line in lines.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            break
        event = json.loads(line)
        if event.get("stage") != "ResponseComplete" or event.get("verb") not in _WRITES:
            continue
        told = event.get("objectRef", {})
        resource = "/".join(filter(None, (told.get("resource", ""), told.get("subresource", ""))))
        counts[event["user"]["username"].rpartition(":")[2], resource] += 1
    return counts
