"""Ballast as people install it: its programs, and their writes, CPU time and memory."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.bench.cost import Cost
from tests.bench.figures import Figure
from tests.support.controlplane.cluster import ControlPlane
from tests.support.installation import Installation, Program
from tests.support.webhook_config import webhooks_in_force

#: Prefix of the accounts of our programs.
OURS: Final = "ballast-"


class Programs(NamedTuple):
    """The programs of one replica of Ballast."""

    control: Program
    serve: Program
    webhooks: Program

    def pids(self) -> dict[str, int]:
        """By the program's name."""
        return {each.name: each.pid for each in self}


@asynccontextmanager
async def installed(
    plane: ControlPlane, namespace: str, *, lease_s: float = 15.0
) -> AsyncIterator[Programs]:
    """Everything runs, and the API server calls the webhooks for pods of the namespace."""
    installation = Installation(plane, by_token=True, lease_s=lease_s)
    folder = Path(tempfile.mkdtemp(prefix="ballast-bench-"))
    webhooks = installation.webhooks(folder)
    try:
        await asyncio.to_thread(installation.start)
        await asyncio.to_thread(webhooks.start)
        ca = (folder / "ca.crt").read_bytes()
        with webhooks_in_force(plane.admin, webhooks.port, ca, namespace):
            yield Programs(installation.control, installation.serve, webhooks)
    finally:
        webhooks.kill()
        installation.stop()


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


def rss_mib(program: Program) -> int:
    """Resident memory of the program, in MiB."""
    for line in Path(f"/proc/{program.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) // 1024
    return 0


def rate(amount: float, took_s: float) -> float:
    """The amount per second."""
    return round(amount / took_s, 2)
