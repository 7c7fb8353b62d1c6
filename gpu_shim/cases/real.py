"""Runs a case on real processes: the arbiter, the native library, and a worker for each workload.

All times are a tenth of the case's. The time that each workload held the card is taken from the
arbiter's account, in which a lease lasts until its last kernel has ended.
"""

import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Final

from gpu_shim.arbiter.arbiter import Arbiter
from gpu_shim.arbiter.container import ContainerCard
from gpu_shim.cases import worker
from gpu_shim.cases.containers import Containers, NoGpuError
from gpu_shim.cases.model import SECOND, CardCase, Workload
from gpu_shim.cases.outcome import CaseOutcome, Held
from gpu_shim.native.build import build
from gpu_shim.policy.leases import Card as Account
from gpu_shim.policy.leases import LeaseSettings
from gpu_shim.protocol.pages import Library

#: Times are divided by this.
SCALE: Final = 10
#: A share may be off by one point over the whole run.
ROOM: Final = Fraction(1, 100)
CAP_MIB: Final = 1024
_FOREVER_S: Final = 1e6


@dataclass(slots=True)
class Stage:
    """Runs cases with a driver, our libraries, and a number of plans to measure."""

    driver: Path
    libraries: Path | None = None
    n_plans: int = 12
    _built: "tempfile.TemporaryDirectory[str] | None" = None

    def run(self, case: CardCase) -> CaseOutcome:
        """Run one case; takes its window, or `n_plans` plans, divided by `SCALE`."""
        with tempfile.TemporaryDirectory(prefix="slices-") as place:
            if self.libraries is None and self._built is None:
                self._built = tempfile.TemporaryDirectory(prefix="ballast-native-")
                build(Path(self._built.name))
            libraries = self.libraries or Path(self._built.name if self._built else "")
            play = Play(case, Containers(Path(place), libraries, self.driver))
            return asyncio.run(play.run(self.n_plans))


@dataclass(slots=True)
class Play:
    """One run of a case."""

    case: CardCase
    containers: Containers
    workers: list[asyncio.subprocess.Process] = field(default_factory=list)

    async def run(self, n_plans: int) -> CaseOutcome:
        """Start all processes, measure, and end them."""
        case = self.case
        settings = LeaseSettings(int(case.lease * SECOND / SCALE), case.precision)
        library = Library(self.containers.libraries / "libballast-pages.so")
        arbiter = Arbiter(library, settings, grace_s=0)
        beating = asyncio.create_task(arbiter.run())
        try:
            uuid = self.containers.uuid()
            refused = self._admit(arbiter, uuid)
            for each in case.workloads:
                if each.name not in refused and each.busy is not False:
                    await self._start(each)
            return await self._measure(arbiter, uuid, n_plans, refused)
        finally:
            for process in self.workers:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            beating.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await beating

    def _admit(self, arbiter: Arbiter, uuid: str) -> dict[str, str]:
        refused, cards = {}, (ContainerCard(uuid, CAP_MIB),)
        for claim in self.case.claims()[0]:
            if why := arbiter.admit(claim, self.containers.make(claim.name, cards), cards):
                refused[claim.name] = why
        return refused

    async def _start(self, workload: Workload) -> None:
        always = isinstance(workload.busy, bool)
        spans = [(Fraction(0), Fraction(int(_FOREVER_S)))] if always else workload.spans()
        scaled = json.dumps([[float(at / SCALE) for at in span] for span in spans])
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", str(worker.__file__), "work", scaled),
            env=self.containers.environment(workload.name),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        self.workers.append(process)
        if await process.stdout.readline() != b"ready\n":
            raise NoGpuError(f"{workload.name}: the worker did not start")

    async def _measure(
        self, arbiter: Arbiter, uuid: str, n_plans: int, refused: dict[str, str]
    ) -> CaseOutcome:
        case = self.case
        plan_s = float(case.lease / case.precision) / SCALE
        begin = time.monotonic() + 0.05
        for process in self.workers:
            assert process.stdin is not None
            process.stdin.write(f"{begin}\n".encode())
        # The first two plans are a warm-up.
        length_s = plan_s * n_plans if case.window is None else float(case.window) / SCALE
        first = begin + (2 * plan_s if case.window is None else 0.0)
        await asyncio.sleep(max(0.0, first - time.monotonic()))
        account = arbiter.scheduler.node.cards[uuid]
        before, n_plans_before = self._sample(account), account.n_plans
        plans = dict[str, list[Fraction]]()
        while (left_s := first + length_s - time.monotonic()) > 0:
            await asyncio.sleep(min(left_s, 0.005))
            if account.n_plans > n_plans_before and account.last_plan_ns > 0.9 * plan_s * 1e9:
                for name, tenant in account.tenants.items():
                    part = Fraction(tenant.held_last_plan_ns, account.last_plan_ns)
                    plans.setdefault(name, []).append(part / case.precision)
            n_plans_before = account.n_plans
        seconds = case.window or Fraction(round(length_s * 1000), 1000) * SCALE
        after = self._sample(account)
        held = {
            name: Held(
                (after[name][0] - due) * SCALE / SECOND,
                Fraction((after[name][1] - held) * SCALE, SECOND),
                [] if case.window is not None else plans.get(name, [])[1:],
            )
            for name, (due, held) in before.items()
        }
        # A workload that stops may have been waiting for its last lease, and was due time until
        # then.
        ends = [end for each in case.workloads for _, end in each.spans() if end < seconds]
        room = ROOM + len(ends) * case.lease / seconds
        tolerance = Fraction(0) if case.window is None else case.lease + ROOM * seconds
        return CaseOutcome(seconds, held, refused, tolerance, room)

    def _sample(self, account: Account) -> Mapping[str, tuple[Fraction, int]]:
        """(due, held) of each workload up to now."""
        account.advance(time.monotonic_ns())
        return {name: (each.due_ns, each.held_ns) for name, each in account.tenants.items()}
