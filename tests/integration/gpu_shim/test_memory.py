"""The memory cap is exact for all ways to allocate and all processes of a container."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from gpu_shim.arbiter.container import MIB
from gpu_shim.policy.leases import LeaseSettings
from tests.integration.gpu_shim.containers import Scene, until
from tests.support.fakecuda import SECOND, UUID

WAYS = ("plain", "managed", "pitched", "queued", "array", "physical")
OUT_OF_MEMORY = 2


@pytest.mark.parametrize("way", WAYS)
async def test_the_cap_can_be_filled_exactly_and_not_by_a_byte_more(scene: Scene, way: str) -> None:
    scene.container("a", cap_mib=64)
    code = f"""
begin()
status, at = {way}(64 * MIB)
more = {way}(512)[0]
tell([status, more, free("{way}", at), {way}(65 * MIB)[0], {way}(64 * MIB)[0]])
"""
    assert await scene.ask("a", code) == [0, OUT_OF_MEMORY, 0, OUT_OF_MEMORY, 0]


async def test_ways_to_allocate_share_one_cap(scene: Scene) -> None:
    scene.container("a", cap_mib=60)
    code = f"begin(); tell([way(10 * MIB)[0] for way in ({', '.join(WAYS)}, plain)])"
    assert await scene.ask("a", code) == [0, 0, 0, 0, 0, 0, OUT_OF_MEMORY]


async def test_what_is_reported_is_the_cap(scene: Scene) -> None:
    scene.container("a", cap_mib=100)
    code = """
begin(); plain(10 * MIB)
total = c_size_t(); cuda.cuDeviceTotalMem_v2(byref(total), 0)
nvml = ctypes.CDLL("libnvidia-ml.so.1"); device = c_void_p()
nvml.nvmlInit_v2(); nvml.nvmlDeviceGetHandleByIndex_v2(0, byref(device))
first, second = (c_uint64 * 3)(), (c_uint64 * 5)(2)
nvml.nvmlDeviceGetMemoryInfo(device, first); nvml.nvmlDeviceGetMemoryInfo_v2(device, second)
tell([memory(), total.value // MIB, [n // MIB for n in first], [n // MIB for n in second[1:]]])
"""
    assert await scene.ask("a", code) == [[90, 100], 100, [100, 90, 10], [100, 0, 90, 10]]


async def test_null_where_a_figure_is_not_wanted_is_no_crash(scene: Scene) -> None:
    scene.container("a")
    code = "begin(); tell([cuda.cuMemGetInfo_v2(NOTHING, NOTHING), cuda.cuMemFree_v2(c_uint64(0))])"
    assert await scene.ask("a", code) == [0, 0]


async def test_a_pool_is_charged_what_it_keeps_until_it_is_trimmed(scene: Scene) -> None:
    scene.container("a")
    code = """
begin()
pool = c_void_p(); cuda.cuDeviceGetMemPool(byref(pool), 0)
cuda.cuMemPoolSetAttribute(pool, 4, byref(c_uint64(1 << 40)))
at = queued(32 * MIB)[1]; free("queued", at)
kept = memory()[0]; again = queued(32 * MIB)[0]; reused = memory()[0]
tell([kept, again, reused, cuda.cuMemPoolTrimTo(pool, c_size_t(0)), memory()[0]])
"""
    assert await scene.ask("a", code) == [32, 0, 32, 0, 32]


async def test_what_a_pool_gives_back_at_a_synchronisation_is_free_for_every_way(
    scene: Scene,
) -> None:
    """The driver releases it then, and calls nothing of ours."""
    scene.container("a")
    code = """
begin()
def cycle():
    at = queued(48 * MIB)[1]; free("queued", at); cuda.cuStreamSynchronize(NOTHING)
cycle(); told = memory()[0]; cycle(); status, at = plain(48 * MIB)
tell([told, status, free("plain", at)])
"""
    assert await scene.ask("a", code) == [64, 0, 0]


async def test_physical_memory_is_charged_until_its_last_mapping_is_gone(scene: Scene) -> None:
    scene.container("a")
    code = """
begin()
handle = physical(32 * MIB)[1]; at = c_uint64()
cuda.cuMemAddressReserve(byref(at), c_size_t(32 * MIB), c_size_t(0), c_uint64(0), c_uint64(0))
cuda.cuMemMap(at, c_size_t(32 * MIB), c_size_t(0), c_uint64(handle), c_uint64(0))
free("physical", handle); mapped = memory()[0]
cuda.cuMemUnmap(at, c_size_t(32 * MIB))
tell([mapped, memory()[0]])
"""
    assert await scene.ask("a", code) == [32, 64]


MAPPINGS = """
PAGE = 2 * MIB
def mapped(n):
    handle = physical(PAGE)[1]; at = c_uint64(); room = c_size_t(n * PAGE)
    cuda.cuMemAddressReserve(byref(at), room, c_size_t(0), c_uint64(0), c_uint64(0))
    for page in range(n):
        place = c_uint64(at.value + page * PAGE)
        assert not cuda.cuMemMap(place, c_size_t(PAGE), c_size_t(0), c_uint64(handle), c_uint64(0))
    free("physical", handle)
    return at.value
def unmap(at, n): return cuda.cuMemUnmap(c_uint64(at), c_size_t(n * PAGE))
"""


async def test_mappings_are_given_back_by_the_range_and_kept_where_the_driver_refuses(
    scene: Scene,
) -> None:
    scene.container("a")
    code = f"""
{MAPPINGS}
begin(); at = mapped(8); left = [memory()[0]]
assert not unmap(at + 2 * PAGE, 3); left.append(memory()[0])
assert unmap(at, 8); left.append(memory()[0])
assert not unmap(at, 2); left.append(memory()[0])
assert not unmap(at + 5 * PAGE, 3); left.append(memory()[0]); tell(left)
"""
    assert await scene.ask("a", code) == [62, 62, 62, 62, 64]


async def test_unmapping_one_of_many_mappings_does_not_search_the_others(scene: Scene) -> None:
    """128 GiB in pages of 2 MiB: at 0.3 ms for each search it would take 20 s."""
    scene.container("a")
    code = f"""
{MAPPINGS}
begin(); n = 60_000; at = mapped(n); began = time.process_time()
assert not any(unmap(at + page * PAGE, 1) for page in range(n))
tell([time.process_time() - began, memory()[0]])
"""
    took_s, free_mib = await scene.ask("a", code)
    print(f"{took_s:.2f} s for 60000 mappings")
    assert free_mib == 64
    assert took_s < 3


async def test_what_goes_with_its_context_is_given_back(scene: Scene) -> None:
    scene.container("a")
    code = """
begin(); plain(40 * MIB); at = queued(8 * MIB)[1]
before = memory()[0]; cuda.cuDevicePrimaryCtxReset_v2(0); begin()
after = memory()[0]; free("queued", at); cuda.cuCtxSynchronize(); tell([before, after, memory()[0]])
"""
    assert await scene.ask("a", code) == [16, 56, 64]


async def test_a_request_the_driver_refuses_is_given_back(scene: Scene) -> None:
    scene.container("a", cap_mib=32768)
    assert await scene.ask("a", "begin(); tell([plain(20000 * MIB)[0], memory()[0]])") == [
        OUT_OF_MEMORY,
        16384,
    ]
    assert scene.used_mib("a") == 0


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


async def test_a_cap_changes_live(scene: Scene) -> None:
    scene.container("a", cap_mib=64)
    code = "begin(); plain(60 * MIB); tell(memory()); hear(); tell([memory(), plain(30 * MIB)[0]])"
    program = await scene.run("a", code)
    assert await program.answer() == [4, 64]
    scene.container("a", cap_mib=100)
    await program.say()
    assert await program.answer() == [[40, 100], 0]


async def test_contexts_and_what_no_hook_saw_are_charged(scene: Scene) -> None:
    scene.container("a", cap_mib=64)
    program = await scene.run("a", "begin(); tell(1); hear(); tell([memory(), plain(61 * MIB)[0]])")
    await program.answer()
    scene.table("a").set_overhead(0, 4 << 20)
    await program.say()
    assert await program.answer() == [[60, 64], OUT_OF_MEMORY]


@pytest.mark.parametrize("end", ["cuCtxDetach", "cuCtxDestroy"])
async def test_a_context_of_the_first_version_is_charged_until_its_last_use_ends(
    scene: Scene, end: str
) -> None:
    await scene.stop()
    scene.context_mib = 16
    scene.start()
    scene.container("a")
    code = f"""
assert cuda.cuInit(0) == 0; context = c_void_p(); left = []
assert cuda.cuCtxCreate(byref(context), 0, 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
left.append(memory()[0]); assert cuda.cuCtxAttach(byref(c_void_p()), 0) == 0
cuda.{end}(context); left.append(memory()[0])
if "{end}" == "cuCtxDestroy": assert cuda.cuCtxDetach(context) == 0
cuda.{end}(context); tell([*left, memory()[0]])
"""
    assert await scene.ask("a", code) == [48, 48, 64]


async def test_what_no_hook_saw_is_held_too_and_not_lent_to_others(scene: Scene) -> None:
    scene.container("a")
    program = await scene.run("a", "begin(); plain(20 * MIB); tell(1); hear()")
    await program.answer()
    table = scene.table("a")
    for more_mib in (5, 0, -5):
        table.set_overhead(0, more_mib * MIB)
        assert table.held_bytes(0) == (20 + more_mib) * MIB


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


async def test_without_configuration_nothing_is_touched(scene: Scene) -> None:
    scene.container("a")
    (scene.home("a") / "gpu.conf").unlink()
    assert await scene.ask("a", "begin(); tell([plain(100 * MIB)[0], memory()[1]])") == [0, 16384]


async def test_a_container_can_not_write_its_grants_or_resize_its_table(scene: Scene) -> None:
    scene.container("a")
    code = """
import mmap
begin(); told = []
for fd in range(3, 20):
    try:
        name = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        continue
    if "ballast-table" in name:
        try:
            os.ftruncate(fd, 0); told.append("resized")
        except OSError:
            told.append("fixed")
for line in open("/proc/self/maps"):
    if "ballast-grants" in line:
        told.append(line.split()[1])
tell(told)
"""
    assert await scene.ask("a", code) == ["fixed", "r--s"]


async def test_a_program_without_a_driver_is_told_so_and_lives(place: Path, native: Path) -> None:
    scene = Scene(place, native, place / "none", LeaseSettings())
    scene.container("a")
    try:
        assert await scene.ask("a", "tell([cuda.cuInit(0), cuda.cuCtxSynchronize()])") == [100, 100]
    finally:
        await scene.close()


async def test_a_graph_node_that_can_not_fit_is_refused_however_it_is_added(scene: Scene) -> None:
    scene.container("a", cap_mib=64)
    code = """
begin()
def node(n, kind=10):
    inner = bytes(104) + n.to_bytes(8, "little") + bytes(8)
    return kind.to_bytes(16, "little") + inner + bytes(128), inner
def statuses(n, kind=10):
    whole, inner = node(n, kind)
    none = c_size_t(0)
    return [
        cuda.cuGraphAddNode(NOTHING, NOTHING, NOTHING, none, whole),
        cuda.cuGraphAddNode_v2(NOTHING, NOTHING, NOTHING, NOTHING, none, whole),
        cuda.cuGraphAddNode_v3(NOTHING, NOTHING, NOTHING, NOTHING, none, whole),
        cuda.cuGraphAddMemAllocNode(NOTHING, NOTHING, NOTHING, none, inner),
    ]
tell([statuses(65 * MIB), statuses(64 * MIB), statuses(65 * MIB, kind=0)[:3]])
"""
    not_supported = 801  # the fake driver's answer: it was asked
    too_large, fitting, other = await scene.ask("a", code)
    assert too_large == [OUT_OF_MEMORY] * 4
    assert fitting == [not_supported] * 4
    assert other == [not_supported] * 3


async def test_allocations_that_are_given_back_leave_nothing_behind(scene: Scene) -> None:
    scene.container("a")
    code = """
begin()
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
def churn(n):
    at = c_uint64(); size = c_size_t(MIB); take = cuda.cuMemAlloc_v2; give = cuda.cuMemFree_v2
    return sum(take(byref(at), size) or give(at) for _ in range(n))
churn(10_000); before = resident()
failed = churn(300_000)
tell([failed, resident() - before, memory()[0]])
"""
    failed, grown, free = await scene.ask("a", code)
    assert (failed, free) == (0, 64)
    # Less than two bytes each.
    assert grown < 512 << 10


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


POOLS = """
begin()
def pool_at(kind):
    pool = c_void_p(); want = (c_int * 22)(1, 0, kind, 0)
    assert not cuda.cuMemPoolCreate(byref(pool), want); return pool
def from_pool(pool, n):
    at = c_uint64()
    return cuda.cuMemAllocFromPoolAsync(byref(at), c_size_t(n), pool, NOTHING), at.value
"""


async def test_a_pool_of_the_hosts_memory_is_charged_to_no_card(scene: Scene) -> None:
    scene.container("a")
    code = f"""
{POOLS}
pool = pool_at(2); status, at = from_pool(pool, 100 * MIB); left = [status, memory()[0]]
free("queued", at); cuda.cuMemPoolTrimTo(pool, c_size_t(0)); tell([*left, memory()[0]])
"""
    assert await scene.ask("a", code) == [0, 64, 64]


async def test_a_pool_is_charged_to_the_card_that_it_is_on(scene: Scene) -> None:
    """Whichever card is current when memory is taken from it and when it is trimmed."""
    scene.container("a", cards=(UUID, SECOND))
    code = f"""
{POOLS}
second = c_void_p(); cuda.cuDevicePrimaryCtxRetain(byref(second), 1)
first = c_void_p(); cuda.cuDevicePrimaryCtxRetain(byref(first), 0)
pool = pool_at(1); cuda.cuMemPoolSetAttribute(pool, 4, byref(c_uint64(1 << 40)))
cuda.cuCtxSetCurrent(second); status, at = from_pool(pool, 32 * MIB)
cuda.cuCtxSetCurrent(first); left = [status, memory()[0]]
cuda.cuCtxSetCurrent(second); left.append(memory()[0])
free("queued", at); cuda.cuMemPoolTrimTo(pool, c_size_t(0)); left.append(memory()[0])
cuda.cuCtxSetCurrent(first); left.append(memory()[0]); tell(left)
"""
    assert await scene.ask("a", code, FAKECUDA_CARDS="2") == [0, 32, 64, 64, 64]


async def test_memory_from_a_destroyed_pool_is_charged_until_it_is_freed(scene: Scene) -> None:
    scene.container("a")
    code = f"""
{POOLS}
pool = pool_at(1); blocks = [from_pool(pool, 20 * MIB)[1] for _ in range(2)]
left = [cuda.cuMemPoolDestroy(pool), memory()[0]]
for at in blocks: free("queued", at); left.append(memory()[0])
tell(left)
"""
    assert await scene.ask("a", code) == [0, 24, 44, 64]


async def test_memory_of_graphs_is_free_again_when_it_is_trimmed(scene: Scene) -> None:
    scene.container("a")
    code = """
begin(); stream, graph, instance = c_void_p(), c_void_p(), c_void_p()
cuda.cuStreamCreate(byref(stream), 0); cuda.cuStreamBeginCapture_v2(stream, 2)
cuda.cuStreamEndCapture(stream, byref(graph))
cuda.cuGraphInstantiateWithFlags(byref(instance), graph, c_uint64(0))
left = [cuda.cuGraphLaunch(instance, stream), memory()[0]]
cuda.cuDeviceGraphMemTrim(0); tell([*left, plain(64 * MIB)[0]])
"""
    assert await scene.ask("a", code, FAKECUDA_GRAPH_MIB="40") == [0, 24, 0]


async def test_a_call_before_the_driver_is_initialised_lifts_no_cap(scene: Scene) -> None:
    scene.container("a")
    code = "tell([physical(MIB)[0], begin(), plain(65 * MIB)[0], physical(65 * MIB)[0], memory()])"
    not_initialised = 3
    said = await scene.ask("a", code)
    assert said == [not_initialised, None, OUT_OF_MEMORY, OUT_OF_MEMORY, [64, 64]]


async def test_arrays_without_memory_of_their_own_are_not_charged_and_nonsense_is_no_crash(
    scene: Scene,
) -> None:
    scene.container("a")
    code = """
begin()
class Descriptor(ctypes.Structure):
    _fields_ = [("w", c_size_t), ("h", c_size_t), ("d", c_size_t), ("format", c_int),
                ("channels", c_int), ("flags", c_int)]
def made(flags):
    at = c_uint64()
    return cuda.cuArray3DCreate_v2(byref(at), byref(Descriptor(MIB, 32, 0, 0x20, 1, flags)))
def nothing(call, *more): return bool(call(byref(c_uint64()), NOTHING, *more))
tell([made(0x40), made(0x80), memory()[0], made(0), nothing(cuda.cuArrayCreate_v2),
      nothing(cuda.cuArray3DCreate_v2), nothing(cuda.cuMipmappedArrayCreate, 1)])
"""
    assert await scene.ask("a", code) == [0, 0, 64, OUT_OF_MEMORY, True, True, True]


@pytest.mark.parametrize(
    ("format_", "n_channels", "mib"),
    [
        pytest.param(0x91, 4, 8, id="BC1"),
        pytest.param(0x95, 4, 16, id="BC3"),
        pytest.param(0x9E, 4, 16, id="BC7"),
        pytest.param(0x9F, 3, 48, id="P010"),
        pytest.param(0xB0, 3, 24, id="NV12"),
        pytest.param(0x59, 3, 24, id="planar 4:2:0"),
        pytest.param(0xC0, 1, 16, id="UNORM_INT8X1"),
        pytest.param(0x08, 2, 32, id="two signed bytes"),
        pytest.param(0x10, 1, 32, id="half"),
    ],
)
async def test_an_array_is_charged_what_its_format_takes(
    scene: Scene, format_: int, n_channels: int, mib: int
) -> None:
    scene.container("a")
    code = f"""
begin()
class Descriptor(ctypes.Structure):
    _fields_ = [("w", c_size_t), ("h", c_size_t), ("format", c_int), ("channels", c_int)]
at = c_uint64()
tell([cuda.cuArrayCreate_v2(byref(at), byref(Descriptor(4096, 4096, {format_}, {n_channels}))),
      memory()[0]])
"""
    assert await scene.ask("a", code) == [0, 64 - mib]


@pytest.mark.parametrize("closed", ["socket:", "/memfd:ballast-table", ""], ids=str)
async def test_a_program_that_closes_our_files_keeps_its_own_and_its_charge(
    scene: Scene, closed: str
) -> None:
    """As one that closes every file it does not know, whose numbers it then has for its own."""
    scene.container("a")
    code = f"""
begin(); plain(40 * MIB); own = []; tell(1); hear()
for fd in range(3, 64):
    try:
        name = os.readlink(f"/proc/self/fd/{{fd}}")
    except OSError:
        continue
    if name.startswith({closed!r}) and not name.endswith("/card"):
        os.close(fd); own.append(os.memfd_create("own")); assert own[-1] == fd
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
