"""Cost of a run: CPU seconds of every process, and writes to the API server by account and time.

CPU time is from /proc, writes are from the API server's audit log. Pods are created before a
`Meter` starts, so their creation is not counted.
"""

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_WRITES: Final = ("create", "update", "patch", "delete")
#: The kubelets' account, whose writes do not depend on the scheduler.
_KUBELETS: Final = "kwok"


@dataclass(slots=True, frozen=True)
class Cost:
    """Cost of one run: CPU seconds by process and, by user and resource, the times at which writes
    were answered, in seconds from the beginning and in order."""

    cpu_s: Mapping[str, float]
    writes: Mapping[tuple[str, str], Sequence[float]]

    @property
    def total_cpu_s(self) -> float:
        """CPU seconds of all processes."""
        return sum(self.cpu_s.values())

    @property
    def n_writes(self) -> int:
        """Number of writes that are not a kubelet's."""
        return sum(len(times) for (user, _), times in self.writes.items() if user != _KUBELETS)


class Meter:
    """Counts the CPU time of these processes (by name) and all writes, from now on."""

    def __init__(self, pids: Mapping[str, int], audit_log: Path) -> None:
        self._pids = dict(pids)
        self._audit_log = audit_log
        self._from = {name: cpu_s(pid) for name, pid in self._pids.items()}
        self._offset = audit_log.stat().st_size
        self._began_s = time.time()

    def read(self) -> Cost:
        """The cost so far."""
        spent = {name: cpu_s(pid) - self._from[name] for name, pid in self._pids.items()}
        with self._audit_log.open("rb") as log:
            log.seek(self._offset)
            return Cost(spent, read_writes(log.read(), self._began_s))


def cpu_s(pid: int) -> float:
    """User and system CPU seconds of the process, all threads; 0 once it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def read_writes(lines: bytes, began_s: float) -> dict[tuple[str, str], list[float]]:
    """Times at which writes in complete lines of an audit log were answered, by user and resource;
    in seconds from `began_s` (unix) and in order."""
    answered: dict[tuple[str, str], list[float]] = {}
    for line in lines.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            break
        event = json.loads(line)
        if event.get("stage") != "ResponseComplete" or event.get("verb") not in _WRITES:
            continue
        told = event.get("objectRef", {})
        resource = "/".join(filter(None, (told.get("resource", ""), told.get("subresource", ""))))
        key = event["user"]["username"].rpartition(":")[2], resource
        at = datetime.fromisoformat(event["stageTimestamp"]).timestamp()
        answered.setdefault(key, []).append(at - began_s)
    return {key: sorted(times) for key, times in answered.items()}
