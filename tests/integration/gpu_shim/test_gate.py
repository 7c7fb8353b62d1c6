"""Shares of compute time on real processes, from the virtual card's log."""

import asyncio
import math
import os
import signal
from collections.abc import Iterable

import pytest

from tests.integration.gpu_shim.containers import Running, Scene, until
from tests.support.fakecuda import SECOND, UUID, Run

BUSY = "begin(); tell(0); work(1000, 60)"
#: Windows in which something is looked for.
WINDOWS = 10


def in_window(runs: Iterable[Run], start_ns: int, end_ns: int) -> list[Run]:
    """What ran in a window, cut to it."""
    return [
        Run(run.pid, run.tag, run.card, max(run.start_ns, start_ns), min(run.end_ns, end_ns))
        for run in runs
        if run.end_ns > start_ns and run.start_ns < end_ns
    ]


async def two_busy(scene: Scene) -> list[Running]:
    """Programs of containers a and b, each with half of a card, that are always busy."""
    scene.container("a", "1/2", "1")
    scene.container("b", "1/2", "1")
    programs = [await scene.run(name, BUSY) for name in "ab"]
    for program in programs:
        await program.answer()
    return programs


def busy_ns(runs: list[Run], tag: int) -> int:
    return sum(run.end_ns - run.start_ns for run in runs if run.tag == tag)


def overlap_ns(runs: list[Run]) -> int:
    """Time in which kernels of more than one container ran."""
    marks = sorted(
        mark for run in runs for mark in ((run.start_ns, 1, run.tag), (run.end_ns, -1, run.tag))
    )
    running, last, found = dict[int, int](), 0, 0
    for at, change, tag in sorted(marks, key=lambda mark: mark[:2]):
        if sum(n > 0 for n in running.values()) > 1:
            found += at - last
        running[tag] = running.get(tag, 0) + change
        last = at
    return found


async def measure(scene: Scene, seconds: float) -> list[Run]:
    """What runs from now on for so long; after a warm-up of a plan."""
    await asyncio.sleep(0.3)
    start = asyncio.get_running_loop().time()
    await asyncio.sleep(seconds)
    end = asyncio.get_running_loop().time()
    return in_window(scene.card.runs(), int(start * 1e9), int(end * 1e9))


async def until_busy(
    scene: Scene, names: str, seconds: float, busy: float, most: float = math.inf
) -> None:
    """Return once the containers, added up, ran for `busy` of a window of so many seconds; they run
    for less than `most` in every window.

    A machine with other work may show less in a window; a gate that is shut does so in every one.
    """
    seen = []
    for _ in range(WINDOWS):
        runs = await measure(scene, seconds)
        seen.append(sum(busy_ns(runs, scene.tag(name)) for name in names) / 1e9)
        assert seen[-1] < most
        if seen[-1] > busy:
            return
    raise AssertionError(f"{names} ran for {seen} of {seconds} s each, never for {busy} s")


async def until_shared(scene: Scene, share: float, seconds: float, off: float = 0.05) -> None:
    """Return once container `a` had this share of what both ran in a window, but for `off`; their
    kernels never overlap.

    A program that gets no processor for a while uses less than its share.
    """
    seen: list[float] = []
    while not seen or abs(seen[-1] - share) >= off:
        assert len(seen) < WINDOWS, seen
        runs = await measure(scene, seconds)
        a, b = (busy_ns(runs, scene.tag(name)) for name in "ab")
        assert overlap_ns(runs) < 0.01 * (a + b)
        seen.append(a / max(1, a + b))


@pytest.mark.parametrize("limit", ["1", ""])
async def test_a_quarter_and_three_quarters_are_held_and_do_not_overlap(
    scene: Scene, limit: str
) -> None:
    scene.container("a", "1/4", limit or "1/4")
    scene.container("b", "3/4", limit or "3/4")
    for name in "ab":
        await (await scene.run(name, BUSY)).answer()
    await until_shared(scene, 0.25, 1.8, 0.04)


async def test_strict_alone_has_its_share_and_no_more(scene: Scene) -> None:
    scene.container("a", "1/2", "1/2")
    await (await scene.run("a", BUSY)).answer()
    await until_busy(scene, "a", 1.5, 0.2 * 1.5, most=0.54 * 1.5)


async def test_who_launches_through_an_open_gate_is_known_before_that(scene: Scene) -> None:
    """Else its first kernels are not waited for when the gate closes in the next moments."""
    scene.container("a", "1/4")
    await (await scene.run("a", BUSY)).answer()
    second = await scene.run(
        "a", "begin(); f = kernel(1); tell(hear()); launch(f); os.kill(os.getpid(), signal.SIGSTOP)"
    )
    await second.say()
    await second.answer()
    slot = scene.arbiter.containers["a"].slot
    await until(lambda: scene.arbiter.fast_path.n_users(slot, 0) == 2)


async def test_fair_alone_has_everything(scene: Scene) -> None:
    scene.container("a", "1/4", "1")
    await (await scene.run("a", BUSY)).answer()
    await until_busy(scene, "a", 1.0, 0.6)


def n_waits(scene: Scene, name: str) -> int:
    """How often the container's programs waited at the gate."""
    return scene.table(name).tally().n_gate_waits


async def test_where_time_is_not_sliced_no_launch_waits_and_memory_is_held(scene: Scene) -> None:
    scene.arbiter.is_timed = False
    scene.container("a", "1/2", "1/2")
    scene.container("b", "1/2", "1/2")
    for name in "ab":
        await (await scene.run(name, BUSY)).answer()
    runs = await measure(scene, 0.5)
    assert {run.tag for run in runs} == {scene.tag("a"), scene.tag("b")}
    assert n_waits(scene, "a") == n_waits(scene, "b") == 0
    assert await scene.ask("a", "begin(); tell(plain(65 * MIB)[0])") == 2


async def test_time_slicing_goes_on_and_off_live_and_memory_stays(scene: Scene) -> None:
    scene.container("a", "1/4", "1/4")
    program = await scene.run("a", "begin(); plain(10 * MIB); tell(0); work(1000, 60)")
    await program.answer()
    await until(lambda: n_waits(scene, "a") > 0)
    settings = scene.arbiter.settings
    scene.arbiter.configure(settings, is_timed=False)
    await until(lambda: len(scene.arbiter.containers["a"].connections) == 1)
    await asyncio.sleep(0.2)
    before = n_waits(scene, "a")
    assert await measure(scene, 0.4)
    assert n_waits(scene, "a") == before
    scene.arbiter.configure(settings, is_timed=True)
    await until(lambda: n_waits(scene, "a") > before + 3)
    assert scene.used_mib("a") == 10


async def test_a_container_that_no_longer_fits_is_let_go_and_goes_on_with_its_cap(
    scene: Scene,
) -> None:
    scene.arbiter.is_timed = False
    scene.container("a", "3/4", "3/4")
    scene.container("b", "1/2", "1/2")
    program = await scene.run(
        "b",
        "begin(); plain(10 * MIB); work(1000, 0.2); tell(0); work(1000, 2)"
        "; tell([memory()[0], plain(60 * MIB)[0]])",
    )
    await program.answer()
    assert scene.arbiter.configure(scene.arbiter.settings, is_timed=True) == ["b"]
    assert list(scene.arbiter.containers) == ["a"]
    assert await program.answer() == [54, 2]
    scene.arbiter.remove("a")
    scene.container("b", "1/2", "1/2")
    assert await scene.ask("b", "begin(); tell(plain(65 * MIB)[0])") == 2


async def test_processes_of_one_container_share_its_lease(scene: Scene) -> None:
    scene.container("a", "1/2", "1/2")
    scene.container("b", "1/2", "1/2")
    for name in "aab":
        await (await scene.run(name, BUSY)).answer()
    runs = await measure(scene, 1.5)
    assert overlap_ns(runs) < 0.02 * 1.5e9
    assert len({run.pid for run in runs if run.tag == scene.tag("a")}) == 2


async def test_who_goes_quiet_leaves_the_card_and_has_it_back_when_it_returns(scene: Scene) -> None:
    scene.container("a", "1/4", "1")
    scene.container("b", "3/4", "1")
    a = await scene.run("a", BUSY)
    b = await scene.run("b", "begin(); work(1000, 0.5); tell(1); hear(); tell(2); work(1000, 60)")
    await a.answer()
    await b.answer()
    await until_busy(scene, "a", 0.6, 0.4)
    await b.say()
    await b.answer()
    await until_shared(scene, 0.25, 1.5)


async def test_a_killed_holder_hands_over_at_once(scene: Scene) -> None:
    programs = await two_busy(scene)
    await asyncio.sleep(0.3)
    await programs[0].kill()
    await until_busy(scene, "b", 0.5, 0.3)


async def test_a_stopped_holder_does_not_hold_up_others_for_good(scene: Scene) -> None:
    scene.arbiter.scheduler.drain_ns = 100_000_000
    programs = await two_busy(scene)
    await asyncio.sleep(0.2)
    os.kill(programs[0].process.pid, signal.SIGSTOP)
    runs = await measure(scene, 1.0)
    os.kill(programs[0].process.pid, signal.SIGCONT)
    assert busy_ns(runs, scene.tag("b")) > 0.1e9
    assert scene.arbiter.scheduler.cards[UUID].n_late > 0


async def test_a_program_that_is_stopped_is_overtaken_once_and_has_its_share_when_it_goes_on(
    scene: Scene,
) -> None:
    scene.arbiter.scheduler.drain_ns = 100_000_000
    programs = await two_busy(scene)
    scheduler, tenant = scene.arbiter.scheduler, scene.arbiter.account("a", UUID)
    assert tenant is not None
    await asyncio.sleep(0.2)
    os.kill(programs[0].process.pid, signal.SIGSTOP)
    await until(lambda: scheduler.stopped == {"a"})
    before = scheduler.cards[UUID].n_late, tenant.held_ns
    await measure(scene, 1.5)
    assert (scheduler.cards[UUID].n_late, tenant.held_ns) == before
    os.kill(programs[0].process.pid, signal.SIGCONT)
    await until(lambda: not scheduler.stopped)
    await until_busy(scene, "a", 1.0, 0.3)


LONG_KERNEL = """
begin(); long, short = kernel(3_000_000), kernel(1)
streams = [c_void_p() for _ in range(2)]
for each in streams: cuda.cuStreamCreate(byref(each), 0)
took, at = [], time.monotonic()
launch(long, streams[0])
for _ in range(6):
    launch(short, streams[1]); took.append(time.monotonic() - at); at = time.monotonic()
tell(max(took))
"""


async def test_a_launch_does_not_wait_for_the_programs_own_long_kernel(scene: Scene) -> None:
    """The kernel may wait for that launch: behind it the program would hang for ever."""
    scene.arbiter.scheduler.drain_ns = 100_000_000
    for name in "ab":
        scene.container(name, "1/2", "1")
    await (await scene.run("b", BUSY)).answer()
    program = await scene.run("a", LONG_KERNEL)
    assert await program.answer() < 1.5


async def test_without_an_arbiter_gates_open_after_a_second(scene: Scene) -> None:
    scene.container("a", "1/2", "1/2")
    scene.container("b", "1/2", "1/2")
    for name in "ab":
        await (await scene.run(name, BUSY)).answer()
    await asyncio.sleep(0.2)
    await scene.stop()
    # Half each would be what is due; together it is more than all there is.
    await until_busy(scene, "ab", 0.5, 0.55)


async def test_shares_re_form_after_a_restart(scene: Scene) -> None:
    scene.container("a", "1/4", "1/4")
    scene.container("b", "3/4", "3/4")
    for name in "ab":
        await (await scene.run(name, BUSY)).answer()
    await scene.stop()
    scene.start(grace_s=0.3)
    scene.container("a", "1/4", "1/4")
    scene.container("b", "3/4", "3/4")
    await until(lambda: scene.n_processes() == 2)
    await until_shared(scene, 0.25, 1.5)


async def test_a_capture_is_neither_gated_nor_broken(scene: Scene) -> None:
    """While its gate is shut, a program captures; the graph runs when it opens."""
    scene.container("a", "1/2", "1/2")
    scene.container("b", "1/2", "1/2")
    await (await scene.run("b", BUSY)).answer()
    code = """
begin(); spin = kernel(1000); stream = c_void_p(); cuda.cuStreamCreate(byref(stream), 1)
done = []
for turn in range(20):
    graph = c_void_p()
    done.append(cuda.cuStreamBeginCapture_v2(stream, 0))
    done += [launch(spin, stream) for _ in range(3)]
    time.sleep(0.01)
    done.append(cuda.cuStreamEndCapture(stream, byref(graph)))
    done.append(cuda.cuGraphLaunch(graph, stream))
tell(done)
"""
    assert set(await scene.ask("a", code)) == {0}
    runs = list(scene.card.runs())
    assert overlap_ns(runs) < 0.03e9


async def test_a_context_may_be_reset_while_others_want_the_card(scene: Scene) -> None:
    """What bounds the queue was made in the old context, and is not touched in the new one."""
    scene.container("a", "1/2", "1/2")
    scene.container("b", "1/2", "1/2")
    await (await scene.run("b", BUSY)).answer()
    code = """
for turn in range(10):
    begin(); work(200, 0.1, at_once=20)
    assert cuda.cuDevicePrimaryCtxReset_v2(0) == 0
tell(0)
"""
    assert await scene.ask("a", code) == 0


async def test_work_in_a_context_of_the_first_version_is_waited_for(scene: Scene) -> None:
    scene.container("a", "1/2", "1/2")
    scene.container("b", "1/2", "1/2")
    await (await scene.run("b", BUSY)).answer()
    code = """
assert cuda.cuInit(0) == 0; context = c_void_p()
assert cuda.cuCtxCreate(byref(context), 0, 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
work(20_000, 2); tell(0)
"""
    assert await scene.ask("a", code) == 0
    runs = list(scene.card.runs())
    assert overlap_ns(runs) < 0.03e9


async def test_what_is_queued_is_bounded_on_every_card(scene: Scene) -> None:
    """A program that never waits, on its second card, after some work on its first."""
    scene.container("a", "1/2", "1/2", cards=(UUID, SECOND))
    scene.container("b", "1/2", "1/2", cards=(SECOND,))
    second = """
context = c_void_p(); cuda.cuDevicePrimaryCtxRetain(byref(context), 1)
cuda.cuCtxSetCurrent(context)
"""
    busy = await scene.run("b", f"begin(); {second}tell(0); work(1000, 60)", FAKECUDA_CARDS="2")
    await busy.answer()
    code = f"""
begin(); work(1000, 0.3); {second}
spin, n, end = kernel(1000), 0, time.monotonic() + 1
while time.monotonic() < end:
    n += launch(spin) == 0
tell(n)
"""
    n_launched = await scene.ask("a", code, FAKECUDA_CARDS="2")
    assert 50 < n_launched < 2000


async def test_many_threads_pass_the_gate(scene: Scene) -> None:
    scene.container("a", "1/2", "1/2")
    scene.container("b", "1/2", "1/2")
    await (await scene.run("b", BUSY)).answer()
    code = """
begin()
threads = [threading.Thread(target=work, args=(200, 1.0)) for _ in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
tell(0)
"""
    assert await scene.ask("a", code) == 0


async def test_waits_at_the_gate_are_counted(scene: Scene) -> None:
    scene.container("a", "1/2", "1/2")
    await (await scene.run("a", BUSY)).answer()
    await until(lambda: n_waits(scene, "a") > 0)
    # Nanoseconds: as long as a hand-over takes, and no more than a busy machine adds.
    assert 0 < scene.table("a").tally().longest_wait_ns < 5e9


async def test_a_program_with_two_cards_has_both_or_none(scene: Scene) -> None:
    cards = f"card {UUID} 64\ncard {SECOND} 64\n"
    scene.container("g", "1/2", "1/2", cards=(UUID, SECOND))
    scene.container("a", "1/2", "1/2")
    scene.container("b", "1/2", "1/2", cards=(SECOND,))
    assert (scene.home("g") / "gpu.conf").read_text() == cards
    both = """
def on(device):
    context = c_void_p(); cuda.cuDevicePrimaryCtxRetain(byref(context), device)
    cuda.cuCtxSetCurrent(context); work(1000, 60)
begin(); tell(0)
threads = [threading.Thread(target=on, args=(device,)) for device in (0, 1)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    second = """
begin(); context = c_void_p(); cuda.cuDevicePrimaryCtxRetain(byref(context), 1)
cuda.cuCtxSetCurrent(context); tell(0); work(1000, 60)
"""
    for name, code in (("g", both), ("a", BUSY), ("b", second)):
        await (await scene.run(name, code, FAKECUDA_CARDS="2")).answer()
    seen: list[tuple[float, ...]] = []
    while not seen or not (all(abs(each - 0.5) < 0.1 for each in seen[-1][:2]) and seen[-1][2]):
        assert len(seen) < WINDOWS, seen
        runs = await measure(scene, 3.6)
        shares = []
        for card, other in enumerate("ab"):
            here = [run for run in runs if run.card == card]
            assert overlap_ns(here) < 0.05e9
            mine, others = (busy_ns(here, scene.tag(name)) for name in ("g", other))
            shares.append(mine / max(1, mine + others))
        gang = [run for run in runs if run.tag == scene.tag("g")]
        together = overlap_ns([Run(0, run.card, 0, run.start_ns, run.end_ns) for run in gang])
        of_each = [busy_ns([r for r in gang if r.card == c], scene.tag("g")) for c in (0, 1)]
        seen.append((*shares, together > 0.8 * min(of_each)))
