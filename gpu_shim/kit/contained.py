"""`contained SECONDS NAME=REQUEST:LIMIT:CAP_MIB:JOB ...`: jobs in containers on one card.

A name that is given twice has two programs. JOB is one of `jobs`, or a command after a `!`.
Once a second the driver's figures correct what contexts are charged, as on a node. Told are each
program's lines, its exit status, the share that the arbiter's account has for each container, the
most memory that NVML saw, and what the agent would report of it.
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
from gpu_shim.agent.nvml import Nvml, NvmlError
from gpu_shim.agent.tenants import SharingPod
from gpu_shim.arbiter.arbiter import Arbiter
from gpu_shim.arbiter.container import ContainerCard
from gpu_shim.bench.stage import CONTEXT_MIB
from gpu_shim.cases.containers import Containers
from gpu_shim.kit.place import containers, driver
from gpu_shim.kit.results import Result, tell
from gpu_shim.policy.leases import LeaseSettings
from gpu_shim.policy.shares import Claim
from gpu_shim.protocol.pages import Library, Table

_MIB: Final = 1 << 20
#: Above the cap by the driver's figures: rounding of its own tables.
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
    """Start everything, follow it for so long, and tell."""
    with containers() as all_of_them:
        uuid, wanted, jobs = all_of_them.uuid(), dict[str, tuple[str, str, ContainerCard]](), []
        for each in asked:
            name, _, rest = each.partition("=")
            request, limit, cap_mib, job = rest.split(":", 3)
            wanted[name] = (request, limit, ContainerCard(uuid, int(cap_mib)))
            jobs.append((name, job))
        async with served(all_of_them, wanted) as arbiter:
            programs = [await _start(all_of_them, name, job, seconds) for name, job in jobs]
            try:
                await _follow(arbiter, wanted, programs, seconds)
            finally:
                for _, program, _ in programs:
                    with contextlib.suppress(ProcessLookupError):
                        program.kill()
                    await program.wait()
                await asyncio.gather(*(listening for *_, listening in programs))


Program = tuple[str, asyncio.subprocess.Process, "asyncio.Task[None]"]


async def _start(all_of_them: Containers, name: str, job: str, seconds: float) -> Program:
    command = [sys.executable, str(_JOBS), job, str(seconds * 0.6)]
    program = await asyncio.create_subprocess_exec(
        *(shlex.split(job[1:]) if job.startswith("!") else command),
        env=all_of_them.environment(name),
        stdout=asyncio.subprocess.PIPE,
    )
    return name, program, asyncio.create_task(_listen(name, job, program))


async def _listen(name: str, job: str, program: asyncio.subprocess.Process) -> None:
    assert program.stdout is not None
    async for line in program.stdout:
        tell(Result(f"{name}: {job}", line.decode(errors="replace").strip(), 1))


@dataclass(slots=True)
class _Audit:
    """What the agent does about memory: charges what no hook counted, and finds who is above."""

    arbiter: Arbiter
    tenants: Sequence[SharingPod]
    nvml: Nvml
    auditor: Auditor
    most_mib: dict[str, int] = field(default_factory=dict)
    found: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, arbiter: Arbiter, wanted: Wanted, programs: Sequence[Program], nvml: Nvml
    ) -> "_Audit":
        """Of these containers; a program's number says which one it runs in."""
        names = {program.pid: name for name, program, _ in programs}
        tenants = [
            SharingPod(name, "kit", name, Claim(name, Fraction(request), Fraction(limit)), (card,))
            for name, (request, limit, card) in wanted.items()
        ]
        auditor = Auditor(lambda pid: names.get(pid, ""), CONTEXT_MIB)
        return cls(arbiter, tenants, nvml, auditor, dict.fromkeys(wanted, 0))

    async def look(self) -> None:
        """One look, as the agent takes them once a second."""
        uuid = self.tenants[0].cards[0].uuid
        used = {name: [table.used_bytes(0)] for name, table in self._tables().items()}
        sight = {uuid: await asyncio.to_thread(self.nvml.processes, uuid)}
        users = CardUsers(self.tenants, self._tables())
        for each in self.auditor.look(users, sight, time.monotonic(), used):
            self.found.setdefault(each.uid, f"{each.reason}: {each.message}")
        for (name, _), n_bytes in self.auditor.seen.items():
            self.most_mib[name] = max(self.most_mib[name], n_bytes // _MIB)

    def tell(self) -> None:
        """The most that each container had, against its cap, and what was found of it.

        The driver's figure is looked up by numbers of our own processes, so it may see none.
        """
        for tenant in self.tenants:
            name, cap_mib = tenant.uid, tenant.cards[0].cap_mib
            most_mib = self.most_mib[name]
            is_good = most_mib <= cap_mib + _MARGIN_MIB if most_mib else None
            told = f"{most_mib} MiB of {cap_mib}"
            tell(Result(f"{name}: most memory by NVML", told, int(most_mib > 0), is_good))
            found = self.found.get(name, "")
            is_clean = not found if most_mib else None
            tell(Result(f"{name}: found", found or "nothing", int(most_mib > 0), is_clean))

    def _tables(self) -> dict[str, Table]:
        containers = self.arbiter.containers.items()
        return {name: table for name, each in containers if (table := each.table) is not None}


async def _follow(
    arbiter: Arbiter, wanted: Wanted, programs: Sequence[Program], seconds: float
) -> None:
    """Sample once a second while all run; shares are of the time in which all of them did."""
    uuid = next(iter(wanted.values()))[2].uuid
    nvml, ends, held = _nvml(), time.monotonic() + seconds, list[dict[str, int]]()
    audit = _Audit.of(arbiter, wanted, programs, nvml) if nvml is not None else None
    while time.monotonic() < ends and any(each.returncode is None for _, each, _ in programs):
        await asyncio.sleep(min(1.0, seconds / 10))
        account = arbiter.scheduler.node.cards.get(uuid)
        if account is not None and all(each.returncode is None for _, each, _ in programs):
            held.append({name: each.held_ns for name, each in account.tenants.items()})
        if audit is not None:
            await audit.look()
    for name, program, _ in programs:
        told = "still running" if program.returncode is None else f"exit {program.returncode}"
        tell(Result(f"{name}: end", told, 1, program.returncode == 0))
    _tell_shares(wanted, held)
    if audit is not None:
        audit.tell()


def _tell_shares(wanted: Wanted, held: Sequence[Mapping[str, int]]) -> None:
    if len(wanted) < 2:
        return
    settled = held[len(held) // 3 :]
    took = {name: settled[-1].get(name, 0) - settled[0].get(name, 0) for name in wanted if settled}
    total = sum(took.values())
    for name, (request, limit, _) in wanted.items():
        part = took.get(name, 0) / total if total else 0.0
        is_fixed = Fraction(request) == Fraction(limit)
        is_good = abs(part - float(Fraction(request))) <= _POINTS if total and is_fixed else None
        n_samples = len(settled) if total else 0
        tell(Result(f"{name}: share held", f"{100 * part:.1f} %", n_samples, is_good, request))


def _nvml() -> Nvml | None:
    folder = driver()
    try:
        return Nvml(str(folder / "libnvidia-ml.so.1") if folder else "")
    except NvmlError as error:
        tell(Result("NVML", str(error), 0))
        return None


if __name__ == "__main__":
    asyncio.run(run(float(sys.argv[1]), sys.argv[2:]))
