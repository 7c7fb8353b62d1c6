"""Every way in which a program looks up the driver's functions finds ours, without side effects."""

import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpu_shim.native.build import CUDA_SOURCES, HERE, compile_c
from gpu_shim.native.generate import hooks_in
from gpu_shim.policy.leases import LeaseSettings
from tests.integration.gpu_shim.containers import Scene, until

HOOKS = sorted(hooks_in([HERE / name for name in CUDA_SOURCES]))
OURS = """
def owner(pointer):
    for line in open("/proc/self/maps"):
        span, *rest = line.split()
        low, high = (int(each, 16) for each in span.split("-"))
        if low <= pointer < high:
            return "ours" if rest[-1].endswith("a/lib/libcuda.so.1") else "the driver's"
def address(library, name):
    return ctypes.cast(getattr(library, name), c_void_p).value
"""


@pytest.fixture
async def quiet(place: Path, native: Path, driver: Path) -> AsyncIterator[Scene]:
    """A container without an arbiter."""
    scene = Scene(place, native, driver, LeaseSettings())
    scene.container("a")
    yield scene
    await scene.close()


@pytest.mark.parametrize(
    "opened",
    [
        '"libcuda.so.1"',
        '"libcuda.so"',
        'os.environ["LD_LIBRARY_PATH"] + "/libcuda.so.1"',
        '"libcuda.so.1", os.RTLD_DEEPBIND | os.RTLD_NOW',
        "None",
    ],
)
async def test_every_way_to_open_the_driver_leads_to_us(quiet: Scene, opened: str) -> None:
    code = f"{OURS}\ntell(owner(address(ctypes.CDLL({opened}), 'cuMemAlloc_v2')))"
    assert await quiet.ask("a", code) == "ours"


async def test_every_name_is_exported_and_hooks_are_found_through_the_driver(quiet: Scene) -> None:
    code = f"""
{OURS}
cuda.cuInit(0)
missing = [name for name in {HOOKS!r} if owner(address(cuda, name)) != "ours"]
found, status = c_void_p(), c_int()
for name in {HOOKS!r}:
    base = name.removesuffix("_ptsz").removesuffix("_v2").removesuffix("_v3").removesuffix("_v4")
    flags = 2 if name.endswith("_ptsz") else 0
    asked = (base.encode(), byref(found), 12000, c_uint64(flags))
    for result in (cuda.cuGetProcAddress_v2(*asked, byref(status)), cuda.cuGetProcAddress(*asked)):
        if result or owner(found.value) != "ours":
            missing.append(base)
tell(missing)
"""
    assert await quiet.ask("a", code) == []


async def test_a_look_up_keeps_the_drivers_answer_where_it_has_none(quiet: Scene) -> None:
    code = """
cuda.cuInit(0)
found, status = c_void_p(), c_int(7)
result = cuda.cuGetProcAddress_v2(b"cuNothing", byref(found), 12000, c_uint64(0), byref(status))
tell([result, found.value, status.value])
"""
    assert await quiet.ask("a", code) == [500, None, 1]


async def test_the_streams_flag_chooses_the_variant(quiet: Scene) -> None:
    code = """
cuda.cuInit(0)
found, plain = c_void_p(), ctypes.cast(cuda.cuLaunchKernel, c_void_p).value
told = []
for flags in (0, 1, 2):
    cuda.cuGetProcAddress_v2(b"cuLaunchKernel", byref(found), 12000, c_uint64(flags), NOTHING)
    told.append(found.value == plain)
tell(told)
"""
    assert await quiet.ask("a", code) == [True, True, False]


async def test_trampolines_pass_every_argument(quiet: Scene) -> None:
    code = """
cuda.cuMemcpyPeer.argtypes = [c_uint64] * 5
tell([cuda.cuMemcpyPeer(1, 20, 300, 4000, 50000), cuda.cuMemcpyPeer(1, 1, 1, 1, 1)])
"""
    assert await quiet.ask("a", code) == [54321, 5]


async def test_a_name_the_driver_lacks_is_an_error_and_no_crash(quiet: Scene) -> None:
    assert await quiet.ask("a", "tell(cuda.cuProfilerStart())") in (500, 801)


async def test_dlsym_for_the_next_definition_still_works(
    quiet: Scene, place: Path, tmp_path: Path
) -> None:
    """A library that wraps a function by RTLD_NEXT must not get its own."""
    source = tmp_path / "wrap.c"
    source.write_text(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <unistd.h>\n"
        '__attribute__((visibility("default"))) int getpid_is_other(void)\n'
        '{ void *next = dlsym(RTLD_NEXT, "getpid_is_other"); return next == (void *)0; }\n'
    )
    compile_c(tmp_path / "libwrap.so", [source])
    code = f"tell(ctypes.CDLL({str(tmp_path / 'libwrap.so')!r}).getpid_is_other())"
    assert await quiet.ask("a", code) == 1


async def test_a_real_handle_of_the_driver_leads_to_us_too(quiet: Scene) -> None:
    """As a loader does that opened the driver before we were asked."""
    code = f"""
{OURS}
cuda.cuInit(0)
libc = ctypes.CDLL("libc.so.6")
libc.dlvsym.restype = libc.dlsym.restype = c_void_p
real_open = ctypes.CFUNCTYPE(c_void_p, ctypes.c_char_p, c_int)(
    libc.dlvsym(c_void_p(-1 & (1 << 64) - 1), b"dlopen", b"GLIBC_2.34")
    or libc.dlvsym(None, b"dlopen", b"GLIBC_2.2.5"))
path = os.environ["LD_LIBRARY_PATH"] + "/libcuda.so.1"
handle = real_open(path.encode(), 2)
main = ctypes.CDLL(None)
main.dlsym.restype = c_void_p
tell(owner(main.dlsym(c_void_p(handle), b"cuMemAlloc_v2")))
"""
    assert await quiet.ask("a", code) == "ours"


async def test_nothing_is_printed_and_no_signal_is_handled(quiet: Scene) -> None:
    code = """
def caught():
    text = open("/proc/self/status").read().split("SigCgt:")[1].split()[0]
    return int(text, 16) & ~(3 << 31)  # 32 and 33 are libc's own, for threads
before = caught()
begin(); plain(MIB); launch(kernel(10))
tell(before == caught())
"""
    program = await quiet.run("a", code)
    assert await program.answer() is True
    assert await program.errors() == ""
    assert await program.end() == 0


async def test_programs_that_do_not_use_the_gpu_have_no_thread_and_no_connection(
    quiet: Scene,
) -> None:
    code = "tell([len(os.listdir('/proc/self/task')), cuda.cuDriverGetVersion(byref(c_int()))])"
    assert await quiet.ask("a", code) == [1, 0]


@pytest.mark.parametrize("library", ["libcuda.so.1", "libnvidia-ml.so.1"])
def test_no_symbol_is_newer_than_glibc_2_17(native: Path, library: str) -> None:
    table = subprocess.run(
        ["objdump", "-T", native / library], capture_output=True, text=True, check=True
    ).stdout
    versions = {tuple(map(int, each.split("."))) for each in re.findall(r"GLIBC_([0-9.]+)", table)}
    assert max(versions) <= (2, 17)


def test_nothing_but_the_drivers_names_and_a_few_of_ours_are_exported(native: Path) -> None:
    table = subprocess.run(
        ["nm", "-D", "--defined-only", native / "libcuda.so.1"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = {line.split()[-1].split("@")[0] for line in table.splitlines()}
    listed = set((HERE / "names_cuda.txt").read_text().split())
    assert listed <= names
    assert {n for n in names - listed if not n.startswith("cu")} == {
        "dlopen",
        "dlsym",
        "ballast_is_cuda",
        "ballast_is_shadow",
        "ballast_view",
    }


def test_every_hook_is_a_name_of_the_driver() -> None:
    listed = set((HERE / "names_cuda.txt").read_text().split())
    assert set(HOOKS) - listed == set()


FUTURE = """
begin(); found = c_void_p()
cuda.cuGetProcAddress_v2(b"cuFromTheFuture", byref(found), 12000, c_uint64(0), NOTHING)
tell(found.value is not None)
"""


ONLY_THE_DRIVER = """
def has(library, name):
    handle = dlopen(library, 2)
    dlerror()
    found = dlsym(handle, name)
    return [bool(found), dlerror() is not None]
tell([has(b"libcuda.so.1", b"cuOnlyTheDriver"), has(b"libnvidia-ml.so.1", b"nvmlOnlyTheDriver"),
      has(None, b"cuOnlyTheDriver"), has(b"libcuda.so.1", b"cuNothing"),
      has(b"libm.so.6", b"cuOnlyTheDriver")])
"""
DL = """
import ctypes
from ctypes import c_char_p
process = ctypes.CDLL(None)
dlopen, dlsym, dlerror = process.dlopen, process.dlsym, process.dlerror
dlopen.restype = dlsym.restype = c_void_p; dlerror.restype = c_char_p
dlopen.argtypes = [c_char_p, c_int]; dlsym.argtypes = [c_void_p, c_char_p]
"""


async def test_a_symbol_that_only_the_driver_has_is_found_through_our_handles(scene: Scene) -> None:
    """A newer driver exports names that no table of ours knows."""
    scene.container("a")
    found, missing = [True, False], [False, True]
    assert await scene.ask("a", DL + ONLY_THE_DRIVER) == [found, found, found, missing, missing]


async def test_names_that_no_table_has_pass_through_and_are_counted(scene: Scene) -> None:
    scene.container("a")
    assert await scene.ask("a", FUTURE) is True
    assert scene.table("a").tally().n_unknown == 1


async def test_what_was_counted_does_not_get_less_when_a_process_ends(scene: Scene) -> None:
    scene.container("a")
    for n in (1, 2, 3):
        await scene.ask("a", FUTURE)
        await until(lambda: not scene.arbiter.containers["a"].connections)
        assert scene.table("a").tally().n_unknown == n
