"""`contained SECONDS NAME=REQUEST:LIMIT:CAP_MIB:JOB ...`: jobs in containers on one card.

A job computes for SECONDS once it is ready, for which it has `START_S`. A name that occurs twice
has two programs. JOB is one of `jobs`, or a command after a `!`. Once a second the driver's figures
correct the charge for contexts, as on a node.

The results are each program's output and exit status, the most memory that NVML saw, the agent's
findings, and, if every limit equals the request, each container's share by the arbiter's account:
from when all programs have printed a first line until the first one ends.
"""

import asyncio
import contextlib
import shlex
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Final

from gpu_shim.agent.audit import Auditor, CardUsers
from gpu_shim.agent.nvml import Nvml
from gpu_shim.agent.options import CONTEXT_MIB
from gpu_shim.agent.tenants import SharingPod
from gpu_shim.arbiter.arbiter import Arbiter
from gpu_shim.arbiter.container import ContainerCard
from gpu_shim.cases.containers import Containers
from gpu_shim.kit.parts import START_S
from gpu_shim.kit.place import containers, open_nvml
from gpu_shim.kit.results import Result, tell
from gpu_shim.policy.leases import LeaseSettings
from gpu_shim.policy.shares import Claim
from gpu_shim.protocol.pages import Library, Table

_MIB: Final = 1 << 20
#: Tolerated above the cap in the driver's figures, for rounding.
_MARGIN_MIB: Final = 64
_POINTS: Final = 0.02
_JOBS: Final = Path(__file__).with_name("jobs.py")

#: By container: its request, its limit, its card and cap.
Wanted = Mapping[str, tuple[str, str, ContainerCard]]


@contextlib.asynccontextmanager
async def served(all_of_them: Containers, wanted: Wanted) -> AsyncIterator[Arbiter]:
    """An arbiter with these containers."""
    library = Library(all_of_them.libraries / "libballast-pages.so")
    arbiter = Arbiter(library, LeaseSettings(), is_timed=True, context_mib=CONTEXT_MIB)
    running = asyncio.create_task(arbiter.run())
    for name, (request, limit, card) in wanted.items():
        claim = Claim(name, Fraction(request), Fraction(limit))
        if why := arbiter.admit(claim, all_of_them.make(name, [card]), (card,)):
            raise ValueError(why)
    try:
        yield arbiter
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def run(seconds: float, asked: Sequence[str]) -> None:
    """Start everything, observe it for `seconds`, and report."""
    with containers() as all_of_them:
        uuid, wanted, jobs = all_of_them.uuid(), dict[str, tuple[str, str, ContainerCard]](), []
        for each in asked:
            name, _, rest = each.partition("=")
            request, limit, cap_mib, job = rest.split(":", 3)
            wanted[name] = (request, limit, ContainerCard(uuid, int(cap_mib)))
            jobs.append((name, job))
        async with served(all_of_them, wanted) as arbiter:
            programs = [await _Program.start(all_of_them, name, job, seconds) for name, job in jobs]
            try:
                await _follow(arbiter, wanted, programs, seconds)
            finally:
                await asyncio.gather(*(program.end() for program in programs))


@dataclass(slots=True)
class _Program:
    """A job that runs in a container, and whether it has printed anything."""

    name: str
    job: str
    process: asyncio.subprocess.Process
    has_told: bool = False
    listening: "asyncio.Task[None]" = field(init=False)

    def __post_init__(self) -> None:
        self.listening = asyncio.create_task(self._listen())

    @classmethod
    async def start(
        cls, all_of_them: Containers, name: str, job: str, seconds: float
    ) -> "_Program":
        """Start the job's process."""
        command = [sys.executable, str(_JOBS), job, str(seconds)]
        process = await asyncio.create_subprocess_exec(
            *(shlex.split(job[1:]) if job.startswith("!") else command),
            env=all_of_them.environment(name),
            stdout=asyncio.subprocess.PIPE,
        )
        return cls(name, job, process)

    async def _listen(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.has_told = True
            tell(Result(f"{self.name}: {self.job}", line.decode(errors="replace").strip(), 1))

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self.process.returncode is None

    async def end(self) -> None:
        """Kill the process, and report its remaining output."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        await self.listening


@dataclass(slots=True)
class _Audit:
    """The agent's memory audit: charges uncounted memory, and finds containers above their cap."""

    arbiter: Arbiter
    tenants: Sequence[SharingPod]
    nvml: Nvml
    auditor: Auditor
    most_mib: dict[str, int] = field(default_factory=dict)
    found: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, arbiter: Arbiter, wanted: Wanted, programs: Sequence[_Program], nvml: Nvml
    ) -> "_Audit":
        """An audit of these containers; a process's pid tells its container."""
        names = {program.process.pid: program.name for program in programs}
        tenants = [
            SharingPod(name, "kit", name, Claim(name, Fraction(request), Fraction(limit)), (card,))
            for name, (request, limit, card) in wanted.items()
        ]
        auditor = Auditor(lambda pid: names.get(pid, ""), CONTEXT_MIB)
        return cls(arbiter, tenants, nvml, auditor, dict.fromkeys(wanted, 0))

    async def look(self) -> None:
        """One check, as the agent does once a second."""
        uuid = self.tenants[0].cards[0].uuid
        used = {name: [table.used_bytes(0)] for name, table in self._tables().items()}
        sight = {uuid: await asyncio.to_thread(self.nvml.processes, uuid)}
        users = CardUsers(self.tenants, self._tables())
        for each in self.auditor.look(users, sight, time.monotonic(), used):
            self.found.setdefault(each.uid, f"{each.reason}: {each.message}")
        for (name, _), n_bytes in self.auditor.seen.items():
            self.most_mib[name] = max(self.most_mib[name], n_bytes // _MIB)

    def tell(self) -> None:
        """Report each container's peak memory against its cap, and its findings.

        The driver's figures are looked up by the pids of our own processes, so there may be none.
        """
        for tenant in self.tenants:
            name, cap_mib = tenant.uid, tenant.cards[0].cap_mib
            most_mib = self.most_mib[name]
            is_good = most_mib <= cap_mib + _MARGIN_MIB if most_mib else None
            held = f"{most_mib} MiB of {cap_mib}"
            tell(Result(f"{name}: most memory by NVML", held, int(most_mib > 0), is_good))
            found = self.found.get(name, "")
            is_clean = not found if most_mib else None
            tell(Result(f"{name}: found", found or "nothing", int(most_mib > 0), is_clean))

    def _tables(self) -> dict[str, Table]:
        containers = self.arbiter.containers.items()
        return {name: table for name, each in containers if (table := each.table) is not None}


async def _follow(
    arbiter: Arbiter, wanted: Wanted, programs: Sequence[_Program], seconds: float
) -> None:
    """Sample once a second until all have ended."""
    uuid = next(iter(wanted.values()))[2].uuid
    nvml, ends, held = open_nvml(), time.monotonic() + seconds + START_S, list[dict[str, int]]()
    audit = _Audit.of(arbiter, wanted, programs, nvml) if nvml is not None else None
    while time.monotonic() < ends and any(program.is_running for program in programs):
        await asyncio.sleep(min(1.0, seconds / 10))
        account = arbiter.scheduler.node.cards.get(uuid)
        if account is not None and all(each.is_running and each.has_told for each in programs):
            held.append({name: each.held_ns for name, each in account.tenants.items()})
        if audit is not None:
            await audit.look()
    for each in programs:
        state = "still running" if each.is_running else f"exit {each.process.returncode}"
        tell(Result(f"{each.name}: end", state, 1, each.process.returncode == 0))
    if all(Fraction(request) == Fraction(limit) for request, limit, _ in wanted.values()):
        _tell_shares(wanted, held)
    if audit is not None:
        audit.tell()


def _tell_shares(wanted: Wanted, held: Sequence[Mapping[str, int]]) -> None:
    took = {name: held[-1].get(name, 0) - held[0].get(name, 0) for name in wanted if held}
    total = sum(took.values())
    n_samples = len(held) if total else 0
    for name, (request, _, _) in wanted.items():
        part = took.get(name, 0) / total if total else 0.0
        is_good = abs(part - float(Fraction(request))) <= _POINTS if total else None
        tell(Result(f"{name}: share held", f"{100 * part:.1f} %", n_samples, is_good, request))


if __name__ == "__main__":
    asyncio.run(run(float(sys.argv[1]), sys.argv[2:]))
