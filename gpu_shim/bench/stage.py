"""Runs tenants side by side: the arbiter, a folder for each container, and its programs."""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, Literal

from gpu_shim.agent.options import CONTEXT_MIB
from gpu_shim.arbiter.arbiter import Arbiter
from gpu_shim.arbiter.container import ContainerCard
from gpu_shim.bench import program
from gpu_shim.cases.containers import Containers, NoGpuError
from gpu_shim.policy.leases import LeaseSettings
from gpu_shim.policy.shares import Claim
from gpu_shim.protocol.pages import Library

MS: Final = 1_000_000
PLENTY_MIB: Final = 1 << 20
_PATIENCE_S: Final = 120

Shim = Literal["none", "idle", "arbiter"]


@dataclass(slots=True, frozen=True)
class StageTenant:
    """One container, and the job of each of its programs."""

    name: str
    job: Mapping[str, Any]
    request: Fraction = Fraction(0)
    limit: Fraction = Fraction(1)
    cap_mib: int = PLENTY_MIB
    n_programs: int = 1


@dataclass(slots=True)
class StageOutcome:
    """The answers of a tenant's programs, and its time in the arbiter's account."""

    answers: list[dict[str, Any]] = field(default_factory=list)
    held_ns: int = 0

    @property
    def n(self) -> int:
        """Kernels of all its programs."""
        return sum(answer.get("n", 0) for answer in self.answers)


@dataclass(slots=True)
class BenchStage:
    """Runs tenants. `shim` is none, idle (memory only, gates open) or arbiter."""

    containers: Containers
    uuid: str
    _number: int = 0

    async def play(
        self,
        tenants: Sequence[StageTenant],
        shim: Shim = "arbiter",
        settings: LeaseSettings | None = None,
        events: "Sequence[tuple[float, str]]" = (),
    ) -> dict[str, StageOutcome]:
        """Start all jobs at one moment; returns the outcome of each tenant.

        `events` are (seconds after the start, what): `stop` and `start` the arbiter, `kill NAME` a
        tenant's programs, which then print nothing.
        """
        self._number += 1
        scene = _Scene(self, tenants, shim, settings or LeaseSettings())
        try:
            return await scene.run(events)
        finally:
            await scene.end()

    def name_of(self, tenant: StageTenant) -> str:
        """The name of its container: folders are not used twice."""
        return f"{self._number}-{tenant.name}"


@dataclass(slots=True)
class _Scene:
    stage: BenchStage
    tenants: Sequence[StageTenant]
    shim: Shim
    settings: LeaseSettings
    programs: dict[str, list[asyncio.subprocess.Process]] = field(default_factory=dict)
    arbiter: Arbiter | None = None
    _beating: "asyncio.Task[None] | None" = None

    async def run(self, events: "Sequence[tuple[float, str]]") -> dict[str, StageOutcome]:
        doors = self._doors()
        if self.shim != "none":
            self.start_arbiter(doors)
        for tenant in self.tenants:
            for _ in range(tenant.n_programs):
                await self._start(tenant)
        begin = time.monotonic() + 0.1
        for each in self._all():
            assert each.stdin is not None
            each.stdin.write(f"{begin}\n".encode())
        outcomes = {tenant.name: StageOutcome() for tenant in self.tenants}
        following = asyncio.create_task(self._follow(outcomes))
        happening = asyncio.create_task(self._happen(events, begin, doors))
        for name, programs in self.programs.items():
            for each in programs:
                if answer := await self._answer(each):
                    outcomes[name].answers.append(answer)
        for task in (following, happening):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        return outcomes

    def _doors(self) -> dict[str, Path]:
        return {
            tenant.name: self.stage.containers.make(
                self.stage.name_of(tenant), [ContainerCard(self.stage.uuid, tenant.cap_mib)]
            )
            for tenant in self.tenants
        }

    def start_arbiter(self, doors: Mapping[str, Path]) -> None:
        library = Library(self.stage.containers.libraries / "libballast-pages.so")
        self.arbiter = Arbiter(
            library, self.settings, is_timed=self.shim == "arbiter", context_mib=CONTEXT_MIB
        )
        self._beating = asyncio.create_task(self.arbiter.run())
        for tenant in self.tenants:
            claim = Claim(tenant.name, tenant.request, tenant.limit)
            cards = (ContainerCard(self.stage.uuid, tenant.cap_mib),)
            if why := self.arbiter.admit(claim, doors[tenant.name], cards):
                raise ValueError(why)

    async def stop_arbiter(self) -> None:
        """Hang up its sockets, as a kill would."""
        if self._beating is not None:
            self._beating.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._beating
        self._beating = self.arbiter = None

    async def _start(self, tenant: StageTenant) -> None:
        name = "" if self.shim == "none" else self.stage.name_of(tenant)
        each = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", str(program.__file__), json.dumps(tenant.job)),
            env=self.stage.containers.environment(name),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 26,
        )
        self.programs.setdefault(tenant.name, []).append(each)
        assert each.stdout is not None
        if await each.stdout.readline() != b"ready\n":
            raise NoGpuError(f"{tenant.name}: the program did not start")

    async def _answer(self, each: asyncio.subprocess.Process) -> "dict[str, Any] | None":
        assert each.stdout is not None
        line = await asyncio.wait_for(each.stdout.readline(), _PATIENCE_S)
        return dict(json.loads(line)) if line else None

    async def _follow(self, outcomes: Mapping[str, StageOutcome]) -> None:
        """Sample the arbiter's account: the time held up to now."""
        while True:
            await asyncio.sleep(0.005)
            card = self.arbiter.scheduler.node.cards.get(self.stage.uuid) if self.arbiter else None
            if card is None:
                continue
            for name, tenant in card.tenants.items():
                outcomes[name].held_ns = max(outcomes[name].held_ns, tenant.held_ns)

    async def _happen(
        self, events: "Sequence[tuple[float, str]]", begin: float, doors: Mapping[str, Path]
    ) -> None:
        for after_s, what in events:
            await asyncio.sleep(max(0.0, begin + after_s - time.monotonic()))
            if what == "stop":
                await self.stop_arbiter()
            elif what == "start":
                self.start_arbiter(doors)
            else:
                for each in self.programs[what.removeprefix("kill ")]:
                    each.kill()

    def _all(self) -> list[asyncio.subprocess.Process]:
        return [each for programs in self.programs.values() for each in programs]

    async def end(self) -> None:
        """End what still runs."""
        for each in self._all():
            with contextlib.suppress(ProcessLookupError):
                each.kill()
            await each.wait()
        await self.stop_arbiter()


@dataclass(slots=True)
class Bench:
    """The setting of all rows. `seconds` is the length of a measurement, after a warm-up."""

    stage: BenchStage
    seconds: float
    settings: LeaseSettings
    #: A kernel's amount of work, such that it takes about 5 ms.
    step: int
    loop: Path

    def rate(self, kernel: str = "burn", **more: Any) -> dict[str, Any]:
        """A job that launches all the time."""
        job = {"do": "rate", "kernel": kernel, "amount": self.step, "seconds": self.seconds}
        return job | more

    def spin(self, ms: float, **more: Any) -> dict[str, Any]:
        """The same with kernels that only take time."""
        return self.rate("spin", amount=int(ms * MS), **more)
