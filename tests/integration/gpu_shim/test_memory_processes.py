"""The memory of processes that race, fork, die, or outlive their arbiter."""

import asyncio
import os
import signal

import pytest

from tests.integration.gpu_shim.containers import Scene, until
from tests.support.fakecuda import OUT_OF_MEMORY


async def test_processes_that_race_never_pass_the_cap_and_leave_nothing(scene: Scene) -> None:
    scene.container("a", cap_mib=64)
    code = """
import random
begin(); mine, refused = [], 0
for turn in range(3000):
    if mine and random.random() < 0.5:
        free("plain", mine.pop())
    else:
        status, at = plain(random.choice([512, 4096, MIB, 3 * MIB, 7 * MIB]))
        refused += status == 2
        if not status:
            mine.append(at)
for at in mine:
    free("plain", at)
tell(refused)
"""
    programs = [await scene.run("a", code) for _ in range(4)]
    highest = 0.0
    answers = asyncio.gather(*(program.answer() for program in programs))
    while not answers.done():
        highest = max(highest, scene.card.used_mib)
        await asyncio.sleep(0.005)
    assert sum(await answers) > 0
    assert 0 < highest <= 64
    assert scene.used_mib("a") == 0


async def test_a_killed_process_gives_back_at_once(scene: Scene) -> None:
    scene.container("a")
    other = await scene.run(
        "a", "begin(); tell(plain(10 * MIB)[0]); hear(); tell(plain(54 * MIB)[0])"
    )
    await other.answer()
    program = await scene.run("a", "begin(); tell(plain(50 * MIB)[0]); hear()")
    assert await program.answer() == 0
    assert scene.used_mib("a") == 60
    await program.kill()
    await until(lambda: scene.used_mib("a") == 10)
    await other.say()
    assert await other.answer() == 0


async def test_killed_anywhere_in_a_change_the_accounts_come_right(scene: Scene) -> None:
    scene.container("a")
    code = "begin(); tell(0)\nwhile True:\n    free('plain', plain(MIB)[1])"
    for _ in range(10):
        program = await scene.run("a", code)
        await program.answer()
        await asyncio.sleep(0.01)
        await program.kill()
    await until(lambda: scene.used_mib("a") == 0)


async def test_a_fork_is_a_process_of_its_own(scene: Scene) -> None:
    scene.container("a")
    code = """
begin(); plain(10 * MIB)
child = os.fork()
if not child:
    begin(); plain(20 * MIB); tell("child"); hear(); os._exit(0)
tell("parent"); hear()
"""
    program = await scene.run("a", code)
    assert {await program.answer(), await program.answer()} == {"parent", "child"}
    assert scene.used_mib("a") == 30
    os.kill(program.process.pid, signal.SIGKILL)
    await until(lambda: scene.used_mib("a") == 20)
    await program.say()
    await until(lambda: scene.used_mib("a") == 0)


async def test_without_an_arbiter_the_configured_cap_still_holds(scene: Scene) -> None:
    await scene.stop()
    scene.container("a", cap_mib=64)
    assert await scene.ask("a", "begin(); tell([memory(), plain(65 * MIB)[0]])") == [
        [64, 64],
        OUT_OF_MEMORY,
    ]


async def test_an_arbiter_that_comes_back_finds_what_was_reserved(scene: Scene) -> None:
    scene.container("a", cap_mib=64)
    code = "begin(); plain(40 * MIB); tell(1); hear(); tell(plain(30 * MIB)[0]); hear()"
    programs = [
        await scene.run("a", code),
        await scene.run("a", "begin(); plain(4 * MIB); tell(1); hear()"),
    ]
    for program in programs:
        await program.answer()
    await scene.stop()
    scene.start(grace_s=0.5)
    scene.container("a", cap_mib=64)
    await until(lambda: scene.n_processes() == 2)
    assert scene.used_mib("a") == 44
    await programs[0].say()
    assert await programs[0].answer() == OUT_OF_MEMORY
    await programs[1].kill()
    await until(lambda: scene.used_mib("a") == 40)


async def test_memory_of_a_dead_process_is_freed_when_the_arbiter_comes_back(
    scene: Scene,
) -> None:
    scene.container("a", cap_mib=64)
    code = "begin(); plain(20 * MIB); tell(1); hear()"
    programs = [await scene.run("a", code) for _ in range(2)]
    for program in programs:
        await program.answer()
    await scene.stop()
    await programs[0].kill()
    scene.start(grace_s=0.5)
    scene.container("a", cap_mib=64)
    await until(lambda: scene.n_processes() == 1)
    await until(lambda: scene.used_mib("a") == 20)


async def test_an_arbiter_that_comes_late_takes_over_what_processes_have(scene: Scene) -> None:
    await scene.stop()
    scene.container("a", cap_mib=64)
    program = await scene.run(
        "a", "begin(); plain(40 * MIB); tell(1); hear(); tell(plain(30 * MIB)[0])"
    )
    await program.answer()
    scene.start()
    scene.container("a", cap_mib=64)
    await until(lambda: scene.n_processes() == 1)
    await until(lambda: scene.used_mib("a") == 40)
    await program.say()
    assert await program.answer() == OUT_OF_MEMORY


async def test_who_only_asks_for_cards_has_no_thread_of_ours(scene: Scene) -> None:
    scene.container("a")
    code = """
threads = lambda: len(os.listdir("/proc/self/task"))
before = threads()
assert cuda.cuInit(0) == 0
tell(threads() - before)
hear()
begin()
tell(plain(4 * MIB)[0], threads() - before)
hear()
"""
    program = await scene.run("a", code)
    assert await program.answer() == 0
    assert scene.n_processes() == 1
    # It finds the arbiter again that came back meanwhile, before it takes anything.
    await scene.stop()
    scene.start()
    scene.container("a")
    await program.say()
    assert await program.answer() == [0, 1]
    assert scene.used_mib("a") == 4


async def test_memory_that_one_thread_frees_and_another_takes_stays_charged(scene: Scene) -> None:
    """The driver gives an address out again before the call that freed it has returned."""
    scene.container("a", cap_mib=1024)
    code = """
begin()
def churn(way, n, size):
    for _ in range(n):
        status, at = way(size); assert not status
        status = free(way.__name__, at); assert not status
def together(way):
    sizes = [2 * MIB, 4 * MIB, 6 * MIB, 8 * MIB]
    threads = [threading.Thread(target=churn, args=(way, 40, size)) for size in sizes]
    for each in threads: each.start()
    for each in threads: each.join()
left = []
for way in (plain, array, physical):
    together(way); left.append(memory()[0])
tell(left)
"""
    assert await scene.ask("a", code, FAKECUDA_LATE_US="500") == [1024, 1024, 1024]
    assert scene.used_mib("a") == 0


@pytest.mark.parametrize("closed", ["socket:", "/memfd:ballast-table", ""], ids=str)
async def test_a_program_that_closes_our_files_keeps_its_own_and_its_charge(
    scene: Scene, closed: str
) -> None:
    """A program may close every file that it does not know, and reuse their numbers. `dup2` does
    both at once: in between, a thread of ours could take a number for a new connection."""
    scene.container("a")
    code = f"""
begin(); plain(40 * MIB); own = []; file = os.memfd_create("own"); tell(1); hear()
for fd in {{*range(3, 64)}} - {{file}}:
    try:
        name = os.readlink(f"/proc/self/fd/{{fd}}")
    except OSError:
        continue
    if name.startswith({closed!r}) and not name.endswith("/card"):
        own.append(os.dup2(file, fd))
tell(2); hear()
tell([len(own), memory()[0], plain(30 * MIB)[0], [os.fstat(each).st_size for each in own]])
"""
    program = await scene.run("a", code)
    assert await program.answer() == 1
    container = scene.arbiter.containers["a"]
    (before,) = container.connections.values()
    await program.say()
    assert await program.answer() == 2
    if closed == "/memfd:ballast-table":
        container.hang_up()
    await until(lambda: all(each is not before for each in container.connections.values()))
    await until(lambda: scene.n_processes() == 1)
    await until(lambda: scene.used_mib("a") == 40)
    await program.say()
    n_own, *rest = await program.answer()
    assert n_own > 0
    assert rest == [24, OUT_OF_MEMORY, [0] * n_own]
