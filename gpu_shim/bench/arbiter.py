"""The cost of the arbiter: between two leases, when many programs start at once, and at rest.

A driver with kernels that only take time shows this as well as a GPU does.
"""

import asyncio
import contextlib
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Final

from gpu_shim.agent.cgroups import pod_of_peer
from gpu_shim.arbiter.arbiter import Arbiter
from gpu_shim.arbiter.container import ContainerCard
from gpu_shim.bench.figures import Bar, Line, gaps_ns, quantile
from gpu_shim.bench.stage import MS, PLENTY_MIB, Bench, StageTenant
from gpu_shim.policy.shares import Claim
from gpu_shim.protocol.pages import Library

HERE: Final = Path(__file__).resolve().parent
LEASE_MS: Final = 20
N_PROGRAMS: Final = 64
N_CROWDS: Final = 10
N_TURNS: Final = 400
#: 0.2 % of a lease by default (250 ms): a tenth of the 2 % that programs may lose by sharing a card
#: (row 2). A hand-over is a message, two wake-ups (the row's second line has the machine's time for
#: these), an event query, and the first launch of another process on the card.
HAND_OVER_US: Final = 500


async def hand_over(bench: Bench) -> list[Line]:
    """How long the card is unused between two busy programs, and the minimum that this costs."""
    settings = replace(bench.settings, lease_ns=LEASE_MS * MS)
    half, job = Fraction(1, 2), bench.spin(1, at_once=2)
    tenants = [StageTenant(name, job, half) for name in "ab"]
    out = await bench.stage.play(tenants, "arbiter", settings)
    runs = {name: [run for each in of.answers for run in each["runs"]] for name, of in out.items()}
    begin = max(each[0][0] for each in runs.values())
    # The time in which both run.
    end = min(each[-1][1] for each in runs.values())
    together = {name: [run for run in each if begin <= run[0] < end] for name, each in runs.items()}
    command = (_compiled(bench, "floor"), str(N_TURNS))
    done = subprocess.run(command, capture_output=True, check=True)  # noqa: S603, ASYNC221
    floor = [int(line) for line in done.stdout.split()]
    gaps = gaps_ns(together)
    bar = Bar(quantile(gaps, 0.5) / 1e3, "us at p50", most=HAND_OVER_US)
    what = "a message and a wake-up by way of a third process"
    return [
        Line(10, "card unused at a hand-over", _told(gaps), (bar,), len(gaps)),
        Line(10, what, _told(floor), n_samples=len(floor)),
    ]


async def come(bench: Bench) -> list[Line]:
    """How long programs of one container take to register that all start at once."""
    program, took = _compiled(bench, "crowd"), list[int]()
    async with _container(bench, "come") as name:
        for _ in range(N_CROWDS):
            process = await asyncio.create_subprocess_exec(
                *(program, str(N_PROGRAMS)),
                env=bench.stage.containers.environment(name),
                stdout=asyncio.subprocess.PIPE,
            )
            answer, _ = await process.communicate()
            took += [int(line) for line in answer.split()]
            assert process.returncode == 0, "a program was refused"
    bar = Bar(quantile(took, 0.99) / 1e6, "ms at p99", most=5)
    what = f"registering, {N_PROGRAMS} programs at once"
    return [Line(11, what, _told(took), (bar,), len(took))]


async def rest(bench: Bench) -> list[Line]:
    """The arbiter's CPU time while no program wants a card."""
    async with _container(bench, "rest"):
        began_s, before_s = time.monotonic(), time.process_time()
        await asyncio.sleep(bench.seconds)
        took_s = time.process_time() - before_s
        part = 100 * took_s / (time.monotonic() - began_s)
    bar = Bar(part, "%", most=1)
    return [Line(12, "arbiter at rest, part of one processor", f"{part:.2f} %", (bar,))]


def _compiled(bench: Bench, name: str) -> Path:
    """One of our programs in C."""
    program = bench.stage.containers.place / name
    command = ("gcc", "-O2", "-pthread", "-o", program, HERE / f"{name}.c", "-ldl")
    subprocess.run(command, check=True)  # noqa: S603
    return program


@contextlib.asynccontextmanager
async def _container(bench: Bench, name: str) -> AsyncIterator[str]:
    """A container that an arbiter has admitted."""
    containers, cards = bench.stage.containers, (ContainerCard(bench.stage.uuid, PLENTY_MIB),)
    arbiter = Arbiter(
        Library(containers.libraries / "libballast-pages.so"),
        bench.settings,
        grace_s=0,
        pod_of_peer=pod_of_peer,
    )
    beating = asyncio.create_task(arbiter.run())
    try:
        claim = Claim(name, Fraction(0), Fraction(1))
        assert arbiter.admit(claim, containers.make(name, cards), cards) == ""
        yield name
    finally:
        beating.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await beating


def _told(took_ns: Sequence[int]) -> str:
    p50, p99 = (quantile(took_ns, part) / 1e3 for part in (0.5, 0.99))
    return f"p50 {p50:.0f} us, p99 {p99:.0f} us, {len(took_ns)} times"
