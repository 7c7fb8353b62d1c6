"""Threads that others wait for get a short scheduler slice, so that they run once woken."""

import ctypes
import os
import struct
import threading
from pathlib import Path

import pytest

from gpu_shim.arbiter.fast_path.event_loop import EventLoop
from tests.integration.gpu_shim.containers import Scene, until

#: The shortest slice that Linux has; from 6.12 on a thread may ask for it.
SHORTEST_NS = 100_000
_GETATTR = {"x86_64": 315, "aarch64": 275}
_ATTRIBUTES = struct.Struct("<IIQiIQQQ")


def slice_ns(thread: int) -> int:
    """The slice of a thread of the ordinary policy and of no better rank than others."""
    found = ctypes.create_string_buffer(_ATTRIBUTES.size)
    number = _GETATTR[os.uname().machine]
    assert ctypes.CDLL(None).syscall(number, thread, found, _ATTRIBUTES.size, 0) == 0
    _, policy, _, nice, _, slice_ns, _, _ = _ATTRIBUTES.unpack(found.raw)
    assert (policy, nice) == (os.SCHED_OTHER, os.nice(0))
    return int(slice_ns)


@pytest.fixture(autouse=True)
def kernel() -> None:
    """Older ones say nothing of slices."""
    if not slice_ns(0):
        pytest.skip("this kernel has no slices of a thread's own")


async def test_the_arbiters_thread_has_the_shortest_slice_and_others_keep_theirs() -> None:
    loop, before = EventLoop(), slice_ns(0)
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        await until(lambda: slice_ns(thread.native_id or 0) == SHORTEST_NS)
        assert slice_ns(0) == before > SHORTEST_NS
    finally:
        loop.stop()
        thread.join()


async def test_the_thread_that_we_add_to_a_program_has_it_and_its_own_threads_do_not(
    scene: Scene,
) -> None:
    scene.container("a")
    program = await scene.run("a", "begin(); tell(0); hear()")
    await program.answer()
    pid = program.process.pid
    threads = [int(each.name) for each in Path(f"/proc/{pid}/task").iterdir()]
    await until(lambda: SHORTEST_NS in {slice_ns(each) for each in threads})
    assert slice_ns(pid) > SHORTEST_NS
    await program.say()
