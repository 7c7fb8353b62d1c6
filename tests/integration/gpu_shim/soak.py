"""Hours of virtual time on one card: real library, driver's figures, audit and evictions.

`python -m tests.integration.gpu_shim.soak --hours 24` runs it long. Programs are processes with the
real library on the fake driver; only the clock of the audit is virtual. An honest program has a
context of 300 to 1200 MiB, loads modules late, and keeps a cache of all memory that it is told is
free. A dishonest one runs without the library, or takes memory that no hook sees beyond its cap.
"""

import argparse
import asyncio
import os
import random
import shutil
import sys
import tempfile
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from extender.api.kinds import CardShare, Device, GpuNode, GpuNodeSpec, Row
from extender.api.objects import ObjectMeta
from gpu_shim.agent.agent import Agent
from gpu_shim.agent.audit import Auditor
from gpu_shim.agent.enforce import Enforcer, EvictionSettings, Sources
from gpu_shim.agent.nvml import Nvml
from gpu_shim.native.build import build
from gpu_shim.policy.leases import LeaseSettings
from tests.integration.gpu_shim.containers import Running, Scene, until
from tests.support import fakecuda
from tests.support.fakecuda import UUID
from tests.support.fakecuda import Card as FakeCard

CAPS_MIB: Final = {"p0": 4096, "p1": 8192, "p2": 8192, "p3": 16384, "p4": 20480}
#: Room for several pods far beyond their caps at once.
CARD_MIB: Final = 1 << 18
CONTEXT_MIB: Final = 512
#: A dishonest pod is evicted after the patience of the audit (3 s), the report, and two looks.
EVICT_AFTER_S: Final = 30.0
FOUND_WITHIN_S: Final = EVICT_AFTER_S + 6
SERVE: Final = """
begin(); kept = []; tell(0)
for what, mib in (line.split() for line in iter(hear, "")):
    n, status = int(mib), 0
    if what == "load":
        image = c_uint64(n * MIB)
        status = cuda.cuModuleLoadDataEx(byref(c_void_p()), byref(image), 0, NOTHING, NOTHING)
    elif what == "free":
        n, at = kept.pop(); free("plain", at)
    else:
        n = memory()[0] if what == "fill" else n
        status, at = plain(n * MIB) if n > 0 else (0, 0)
        kept += [(n, at)] if at and not status else []
    tell([status, n])
"""


@dataclass(slots=True)
class Program:
    """One process, and what the card gave it: in MiB, seen by hooks or not."""

    running: Running
    unhooked_mib: int
    blocks: list[int] = field(default_factory=list)

    @property
    def charge_mib(self) -> int:
        """What may be charged for it beyond its allocations."""
        return max(CONTEXT_MIB, self.unhooked_mib)

    async def do(self, what: str, mib: int = 0) -> tuple[int, int]:
        """(status, MiB) of one command."""
        await self.running.say(f"{what} {mib}")
        status, n = await self.running.answer()
        return int(status), int(n)


@dataclass(slots=True)
class Tally:
    """What happened; the lists are empty after a good run."""

    done: Counter[str] = field(default_factory=Counter)
    evicted_honest: list[str] = field(default_factory=list)
    refused_wrongly: list[str] = field(default_factory=list)
    not_found: list[str] = field(default_factory=list)

    def told(self) -> str:
        """One line for a person."""
        counts = ", ".join(f"{n} {what}" for what, n in sorted(self.done.items()))
        bad = (self.evicted_honest, self.refused_wrongly, self.not_found)
        return f"{counts}; honest evicted, refused wrongly, not found: {[len(b) for b in bad]}"


class Soak:
    """One card with five pods; it is the API server, too, as far as an eviction goes."""

    def __init__(self, scene: Scene, nvml: Nvml, seed: int) -> None:
        self.scene, self.nvml, self.rng = scene, nvml, random.Random(seed)
        self.now_s, self.tally = 0.0, Tally()
        self.programs: dict[str, list[Program]] = {uid: [] for uid in CAPS_MIB}
        self.pods: dict[int, str] = {}
        #: When each dishonest pod began.
        self.dishonest: dict[str, float] = {}
        self.doomed: list[str] = []
        #: What may have been charged beyond allocations at the last looks, by pod.
        self.charges: dict[str, deque[int]] = {uid: deque([0], 4) for uid in CAPS_MIB}
        self.start_agent()

    # -- the agent ------------------------------------------------------------------------------

    def start_agent(self) -> None:
        devices = [Device(index=0, memory_mib=CARD_MIB, uuid=UUID)]
        scene = self.scene
        self.agent = Agent(
            "n", devices, scene.arbiter, scene.native, scene.root, is_running=lambda _: True
        )
        self.agent.apply(self.node())
        sources = Sources(self.nvml, auditor=Auditor(lambda pid: self.pods.get(pid, ""), 512))
        api: Any = self
        eviction = EvictionSettings(is_on=True, after_s=EVICT_AFTER_S)
        self.enforcer = Enforcer(api, self.agent, sources, eviction, clock=lambda: self.now_s)

    def node(self) -> GpuNode:
        rows = [
            Row(uid=uid, namespace="team", name=uid, cards=[CardShare(0, 200, cap)], state="bound")
            for uid, cap in CAPS_MIB.items()
        ]
        return GpuNode(metadata=ObjectMeta(name="n"), spec=GpuNodeSpec(rows=rows))

    async def delete(self, _resource: object, name: str, _namespace: str, **_: object) -> None:
        """The API server: an eviction."""
        self.doomed.append(name)

    async def connected(self) -> None:
        """Wait until every process with the library has a slot, and none that is gone has."""
        wanted = {
            program.running.process.pid
            for uid, programs in self.programs.items()
            for program in programs
            if self.kind(uid) != "bare"
        }

        def owners() -> set[int]:
            tables = self.agent.tables().values()
            return {pid for table in tables for _, pid in table.owners()}

        await until(lambda: owners() == wanted)

    async def look(self) -> None:
        """One second of the agent; programs go on while the driver answers."""
        self.now_s += 1
        used = {uid: [table.used_bytes(0)] for uid, table in self.agent.tables().items()}
        await self.act(self.rng.random() < 0.1)
        sight = {UUID: self.nvml.processes(UUID)}
        await self.act(self.rng.random() < 0.1)
        found = self.enforcer.sources.auditor.look(self.enforcer._ledger(), sight, self.now_s, used)
        for uid in CAPS_MIB:
            self.charges[uid].append(sum(each.charge_mib for each in self.programs[uid]))
        await self.enforcer.act(found)
        for uid in self.doomed:
            if uid not in self.dishonest:
                self.tally.evicted_honest.append(f"{uid} at {self.now_s}")
            self.tally.done["dishonest found"] += uid in self.dishonest
            await self.end(uid)
        self.doomed = []
        for uid, since in list(self.dishonest.items()):
            if self.now_s - since > FOUND_WITHIN_S:
                self.tally.not_found.append(f"{uid} since {since}")
                await self.end(uid)

    # -- programs -------------------------------------------------------------------------------

    def kind(self, uid: str) -> str:
        return "bare" if uid in self.bare else "with the library"

    bare: frozenset[str] = frozenset()

    async def begin(self, uid: str, is_bare: bool = False) -> Program:
        context_mib = self.rng.randint(300, 1200)
        more = {"FAKECUDA_CONTEXT_MIB": str(context_mib)} | ({"LD_PRELOAD": ""} if is_bare else {})
        made = Program(await self.scene.run(uid, SERVE, **more), context_mib)
        self.pods[made.running.process.pid] = uid
        assert await made.running.answer() == 0
        self.programs[uid].append(made)
        self.charges[uid].append(sum(each.charge_mib for each in self.programs[uid]))
        self.bare |= {uid} if is_bare else set()
        self.tally.done["programs"] += 1
        return made

    async def end(self, uid: str) -> None:
        for program in self.programs[uid]:
            await program.running.kill()
            self.scene.programs.remove(program.running)
        self.programs[uid] = []
        self.dishonest.pop(uid, None)
        self.bare -= {uid}
        await self.connected()

    async def take(self, uid: str, program: Program, what: str, mib: int = 0) -> None:
        """Allocate; a refusal is wrong where the cap has room beyond all that may be charged."""
        status, n = await program.do(what, mib)
        hooked = sum(sum(each.blocks) for each in self.programs[uid])
        room = CAPS_MIB[uid] - hooked - max(self.charges[uid])
        self.tally.done["allocations"] += 1
        if not status and n:
            program.blocks.append(n)
        elif status and (what == "fill" or n <= room):
            self.tally.refused_wrongly.append(
                f"{uid} at {self.now_s}: {n} MiB of {room}, status {status}"
            )

    async def act(self, is_acting: bool) -> None:
        """Something that a program of a random pod does."""
        uid = self.rng.choice(list(CAPS_MIB))
        if not is_acting or uid in self.dishonest or uid not in self.agent.tenants:
            return
        programs = self.programs[uid]
        # Two processes of a pod at most, where the cap has room for contexts.
        if not programs or (len(programs) < 2 and uid > "p2" and self.rng.random() < 0.1):
            await self.begin(uid)
            return
        program, chance = self.rng.choice(programs), self.rng.random()
        if chance < 0.4:
            await self.take(uid, program, "fill")
        elif chance < 0.7 and program.blocks:
            _, mib = await program.do("free")
            program.blocks.pop()
            await self.take(uid, program, "take", mib)
        elif chance < 0.8 and program.blocks:
            await program.do("free")
            program.blocks.pop()
        elif chance < 0.9 and program.unhooked_mib < 1200:
            await self.load(program, self.rng.randint(50, 300))
        elif chance > 0.97:
            await self.end(uid)
        elif chance > 0.94:
            await self.cheat(uid, program)

    async def load(self, program: Program, mib: int) -> None:
        assert (await program.do("load", mib))[0] == 0
        program.unhooked_mib += mib

    async def cheat(self, uid: str, program: Program) -> None:
        self.dishonest[uid] = self.now_s
        if self.rng.random() < 0.5:
            await self.end(uid)
            bare = await self.begin(uid, is_bare=True)
            self.dishonest[uid] = self.now_s
            await bare.do("take", self.rng.randint(1, 4096))
        else:
            mib = CAPS_MIB[uid] + 1024 * len(self.programs[uid]) + 64
            await self.load(program, mib)
        self.tally.done["dishonest"] += 1

    # -- time -----------------------------------------------------------------------------------

    async def disturb(self) -> None:
        """Restart the agent, or lose the GpuNode for some seconds."""
        if self.rng.random() < 0.5:
            await self.scene.stop()
            self.scene.start()
            self.start_agent()
            self.tally.done["restarts of the agent"] += 1
        else:
            self.agent.apply(None)
            for _ in range(self.rng.randint(1, 10)):
                await self.look()
            self.agent.apply(self.node())
            self.tally.done["losses of the GpuNode"] += 1
        await self.look()
        await self.connected()

    async def run(self, seconds: int) -> Tally:
        """Let so much virtual time go by."""
        while self.now_s < seconds:
            await self.look()
            if not self.dishonest and self.rng.random() < 1 / 100:
                await self.disturb()
        return self.tally


async def soak(place: Path, native: Path, driver: Path, seconds: int, seed: int) -> Tally:
    """Run in a folder with a short path, with libraries that were built."""
    scene = Scene(place, native, driver, LeaseSettings(), context_mib=CONTEXT_MIB)
    scene.card = FakeCard(scene.card.path, total_mib=CARD_MIB)
    os.environ["FAKECUDA_STATE"] = str(scene.card.path)
    # A library maps its card once; a copy is another library.
    nvml = Nvml(str(shutil.copy(driver / "libnvidia-ml.so.1", place / "nvml.so")))
    scene.start()
    try:
        return await Soak(scene, nvml, seed).run(seconds)
    finally:
        await scene.close()


def main() -> int:
    """Run from the command line; 1 if anything is not as it should be."""
    parser = argparse.ArgumentParser(description="hours of virtual time on one card")
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        place = Path(folder)
        build(place / "native")
        fakecuda.build(place / "driver")
        work = place / "s"
        work.mkdir()
        seconds = int(options.hours * 3600)
        tally = asyncio.run(soak(work, place / "native", place / "driver", seconds, options.seed))
    for each in (*tally.evicted_honest, *tally.refused_wrongly, *tally.not_found):
        sys.stdout.write(f"{each}\n")
    sys.stdout.write(f"{tally.told()}\n")
    return int(bool(tally.evicted_honest or tally.refused_wrongly or tally.not_found))


if __name__ == "__main__":
    sys.exit(main())
