"""Libraries and arbiters of two releases: a running container keeps its library when the agent is
upgraded, and when it goes back to the release before.

`release-1.tar.xz` has the sources of the last release that spoke version 1 of the protocol:
`git archive --prefix=release-1/ 6028f01`, of gpu_shim what the arbiter and the library need.
Its arbiter runs on the compiled fast path of today, whose grants and messages are still those.
"""

import asyncio
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from gpu_shim.arbiter import fast_path
from gpu_shim.arbiter.container import ContainerCard
from gpu_shim.home import furnish, socket_path
from gpu_shim.protocol import wire
from gpu_shim.protocol.pages import Library, Table
from tests.integration.gpu_shim.containers import Running, Scene, until
from tests.integration.gpu_shim.test_connections import connect
from tests.integration.gpu_shim.test_gate import BUSY, until_shared
from tests.support.fakecuda import UUID

ARCHIVE = Path(__file__).parent / "release-1.tar.xz"
OLD_ARBITER = """
import asyncio, json, sys
from fractions import Fraction
from pathlib import Path
from gpu_shim.arbiter.arbiter import Arbiter
from gpu_shim.arbiter.container import Card
from gpu_shim.policy.leases import Settings
from gpu_shim.policy.shares import Claim
from gpu_shim.protocol import wire
from gpu_shim.protocol.pages import Library

async def main(libraries, uuid, *paths):
    assert wire.VERSION == 1
    library = Library(Path(libraries) / "libballast-pages.so")
    arbiter = Arbiter(library, Settings(25_000_000), 0.0)
    running = asyncio.create_task(arbiter.run())
    for name, path in zip("ab", paths):
        claim = Claim(name, Fraction(1, 2), Fraction(1))
        assert arbiter.admit(claim, Path(path), (Card(uuid, 64),)) == ""
    print("{}", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        container = arbiter.containers[line.strip()]
        table = container.table
        n_waits = table.tally().n_gate_waits
        said = [table.used_bytes(0) >> 20, len(container.keys), n_waits]
        print(json.dumps(said), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of that release, its libraries built in `libraries`."""
    place = tmp_path_factory.mktemp("release")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(place, filter="data")
    root = place / "release-1"
    for module in Path(fast_path.__path__[0]).glob("*.so"):
        shutil.copy(module, root / "gpu_shim/arbiter/fast_path")
    build = [sys.executable, "-m", "gpu_shim.native.build", str(root / "libraries")]
    subprocess.run(build, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, check=True)
    return root


async def test_a_library_of_the_release_before_is_held_to_its_cap_and_its_turn(
    scene: Scene, release: Path
) -> None:
    furnish(scene.home("a"), release / "libraries", (ContainerCard(UUID, 64),))
    scene.container("a", "1/2", "1/2")
    scene.container("b", "1/2", "1/2")
    old = await scene.run(
        "a", "begin(); plain(40 * MIB); tell(1); hear(); tell(plain(30 * MIB)[0]); work(1000, 60)"
    )
    await old.answer()
    assert scene.used_mib("a") == 40
    await old.say()
    assert await old.answer() == 2
    await (await scene.run("b", BUSY)).answer()
    await until_shared(scene, 0.5, 1.5, 0.1)
    assert scene.table("a").tally().n_gate_waits > 0
    await old.kill()
    await until(lambda: scene.used_mib("a") == 0)


async def test_a_library_of_today_is_held_by_an_arbiter_of_the_release_before(
    scene: Scene, release: Path
) -> None:
    """The agent went back to the release before, and the container has the newer library."""
    await scene.stop()
    for name in "ab":
        scene.container(name)
    pipe = asyncio.subprocess.PIPE
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OLD_ARBITER, str(release / "libraries"), UUID),
        *(str(socket_path(scene.home(name))) for name in "ab"),
        cwd=release,
        env={**os.environ, "PYTHONPATH": str(release)},
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
    )
    arbiter = Running(started)
    scene.programs.append(arbiter)
    await arbiter.answer()
    program = await scene.run(
        "a",
        "begin(); plain(40 * MIB); tell(memory()); hear()\n"
        "tell(plain(30 * MIB)[0]); hear(); work(1000, 60)",
    )
    assert await program.answer() == [24, 64]
    await arbiter.say("a")
    assert (await arbiter.answer())[:2] == [40, 1]
    assert await scene.ask("a", "begin(); tell(plain(30 * MIB)[0])") == 2
    await program.say()
    assert await program.answer() == 2
    await (await scene.run("b", BUSY)).answer()
    await program.say()
    await asyncio.sleep(1)
    for name in "ab":
        await arbiter.say(name)
        assert (await arbiter.answer())[2] > 0, f"{name} never waited for its turn"


async def test_more_processes_than_an_old_table_has_slots_are_held_to_one_cap(scene: Scene) -> None:
    scene.container("a")
    n = wire.FEW_SLOTS + 20
    crowd = [connect(scene, "a") for _ in range(n)]
    for slot, sock in enumerate(crowd):
        # All are of one process, which may ask for the slot that it had.
        sock.send(wire.Message(wire.Kind.HELLO, value=wire.VERSION, slot=slot).encode())
        await asyncio.sleep(0)
    await until(lambda: len(scene.arbiter.containers["a"].keys) == n)
    slots = [wire.MESSAGE.unpack(sock.recv(64))[3] for sock in crowd]
    assert sorted(slots) == list(range(n))
    code = "begin(); tell(plain(40 * MIB)[0]); hear(); tell(plain(40 * MIB)[0])"
    first = await scene.run("a", code)
    assert await first.answer() == 0
    assert scene.used_mib("a") == 40
    assert await scene.ask("a", "begin(); tell(plain(40 * MIB)[0])") == 2
    # A restart of the arbiter: the process brings its slot along, and nothing is charged twice.
    await scene.stop()
    for sock in crowd:
        sock.close()
    scene.start(grace_s=0.5)
    scene.container("a")
    await until(lambda: scene.n_processes() == 1)
    assert scene.used_mib("a") == 40
    # The process that was refused has ended; its slot is free again when the arbiter has looked.
    await until(lambda: scene.table("a").owners()[-1] == (n, first.process.pid))
    await first.kill()
    await until(lambda: scene.used_mib("a") == 0)


def test_a_process_with_an_old_library_gets_a_slot_that_it_knows(native: Path) -> None:
    table = Table(Library(native / "libballast-pages.so"), [UUID])
    for pid in range(1, wire.FEW_SLOTS + 1):
        assert table.take_slot(pid) == pid - 1
    assert table.take_slot(1000, version=wire.OLDEST) == -1
    assert table.take_slot(1001) == wire.FEW_SLOTS
    assert table.forget(7)
    assert table.take_slot(1002, version=wire.OLDEST) == 7
