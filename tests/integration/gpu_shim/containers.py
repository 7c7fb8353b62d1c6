"""Containers without a container runtime: a folder each, and programs that see it as their root."""

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from gpu_shim.arbiter.arbiter import Arbiter
from gpu_shim.arbiter.container import ContainerCard
from gpu_shim.arbiter.scheduler.gate_observer import GateObserver
from gpu_shim.home import furnish, preloaded, socket_path
from gpu_shim.policy.leases import LeaseSettings
from gpu_shim.policy.shares import Claim
from gpu_shim.protocol.pages import Library, Table
from tests.support.fakecuda import UUID
from tests.support.fakecuda import Card as FakeCard

PROGRAM = Path(__file__).parent / "hostprogram.py"
#: Generous: a busy machine is no failure, and a wait that is met ends at once.
DONE_S = 90.0


class Running:
    """A program, its answers, and a way to speak to it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def answer(self) -> Any:
        """Its next line."""
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), DONE_S)
        if not line:
            raise AssertionError(f"the program said nothing: {await self.errors()}")
        return json.loads(line)

    async def say(self, text: str = "") -> None:
        """Let it go on where it waits."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n".encode())
        await self.process.stdin.drain()

    async def errors(self) -> str:
        """What it wrote besides."""
        assert self.process.stderr is not None
        return (await self.process.stderr.read()).decode()

    async def end(self) -> int:
        """Wait until it is over; its exit status."""
        return await asyncio.wait_for(self.process.wait(), DONE_S)

    async def kill(self) -> None:
        """End it the hard way."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


@dataclass(slots=True)
class Scene:
    """One card, one arbiter, and containers."""

    root: Path
    native: Path
    driver: Path
    settings: LeaseSettings
    observer: GateObserver | None = None
    context_mib: int = 0
    card: FakeCard = field(init=False)
    arbiter: Arbiter = field(init=False)
    programs: list[Running] = field(default_factory=list)
    _tags: dict[str, int] = field(default_factory=dict)
    _beating: "asyncio.Task[None] | None" = None

    def __post_init__(self) -> None:
        self.card = FakeCard(self.root / "card")

    def start(self, grace_s: float = 0.0) -> None:
        """Start an arbiter."""
        library = Library(self.native / "libballast-pages.so")
        self.arbiter = Arbiter(
            library,
            self.settings,
            grace_s,
            observer=self.observer,
            context_mib=self.context_mib,
        )
        self._beating = asyncio.create_task(self.arbiter.run())

    async def stop(self) -> None:
        """Stop it, as a kill would: its sockets hang up."""
        if self._beating is not None:
            self._beating.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._beating
            self._beating = None

    def home(self, name: str) -> Path:
        """What a container has mounted."""
        return self.root / name

    def container(
        self,
        name: str,
        share: str = "0",
        limit: str = "1",
        cap_mib: int = 64,
        cards: tuple[str, ...] = (UUID,),
    ) -> None:
        """Make a container and, where there is an arbiter, tell it."""
        home, caps = self.home(name), tuple(ContainerCard(uuid, cap_mib) for uuid in cards)
        furnish(home, self.native, caps)
        if self._beating is not None:
            claim = Claim(name, Fraction(share), Fraction(limit))
            assert self.arbiter.admit(claim, socket_path(home), caps) == ""

    async def run(self, name: str, code: str, **environment: str) -> Running:
        """Run a program in a container's view."""
        view = {
            "PATH": os.environ["PATH"],
            "FAKECUDA_STATE": str(self.card.path),
            "FAKECUDA_TAG": str(self.tag(name)),
            "LD_LIBRARY_PATH": str(self.driver),
            "LD_PRELOAD": " ".join(preloaded(self.home(name))),
        }
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", str(PROGRAM), code),
            env=view | environment,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
        )
        self.programs.append(Running(process))
        return self.programs[-1]

    async def ask(self, name: str, code: str, **environment: str) -> Any:
        """Run a program to its end; the one thing it told."""
        program = await self.run(name, code, **environment)
        answer = await program.answer()
        assert await program.end() == 0
        return answer

    def table(self, name: str) -> Table:
        """The container's memory table."""
        table = self.arbiter.containers[name].table
        assert table is not None
        return table

    def n_processes(self) -> int:
        """Processes that have been welcomed."""
        return sum(len(each.keys) for each in self.arbiter.containers.values())

    def used_mib(self, name: str) -> float:
        """What the container has reserved."""
        return self.table(name).used_bytes(0) / (1 << 20)

    def tag(self, name: str) -> int:
        """How the card's log calls the container's programs."""
        return self._tags.setdefault(name, len(self._tags))

    async def close(self) -> None:
        """End everything."""
        for program in self.programs:
            await program.kill()
        await self.stop()


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < DONE_S, f"not seen in {DONE_S:g} s"
        await asyncio.sleep(0.002)
