"""NVIDIA's own libraries of several driver branches behind ours: `make drivers` fetches them.

They load and answer without a GPU; `cuInit` then says that there is none.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_shim.arbiter.container import ContainerCard
from gpu_shim.home import furnish, preloaded
from gpu_shim.native.build import HERE
from tests.integration.gpu_shim.test_cudart import Runtime, runtime
from tests.support import fakecuda
from tests.support.drivers import LIBRARIES, Driver, committed, exported, fetched
from tests.support.fakecuda import UUID

__all__ = ["runtime"]

DRIVERS = fetched()
CAP_MIB = 4096
#: dlopens both libraries by SONAME; whether each name of a list is found, and of which library.
RESOLVE = """
import ctypes, json, sys
from ctypes import c_char_p, c_int, c_void_p
class Info(ctypes.Structure):
    _fields_ = [("file", c_char_p), ("base", c_void_p), ("name", c_char_p), ("at", c_void_p)]
process = ctypes.CDLL(None)
process.dlopen.restype = process.dlsym.restype = c_void_p
process.dlsym.argtypes = [c_void_p, c_char_p]
process.dladdr.argtypes = [c_void_p, c_void_p]
library, names = json.load(sys.stdin)
handle = c_void_p(process.dlopen(library.encode(), 2))
found = {}
for name in names:
    at, info = process.dlsym(handle, name.encode()), Info()
    process.dladdr(at, ctypes.byref(info))
    found[name] = info.file.decode() if at else ""
print(json.dumps(found))
"""
#: Every base name, version and flag: the name of the function that cuGetProcAddress returned.
ASK = """
import ctypes, json, re, sys
from ctypes import byref, c_char_p, c_int, c_uint64, c_void_p
cuda = ctypes.CDLL("libcuda.so.1")
exported = json.load(sys.stdin)
at = {}
for name in exported:
    at.setdefault(ctypes.cast(getattr(cuda, name), c_void_p).value, name)
bases = sorted({re.sub(r"(_v[0-9])?(_pt[sd][sz])?$", "", name) for name in exported})
ask = cuda.cuGetProcAddress_v2
ask.argtypes = [c_char_p, c_void_p, c_int, c_uint64, c_void_p]
answers = {}
for base in bases:
    for version in (11000, 12000, 12040):
        for flags in (0, 1, 2):
            found, status = c_void_p(), c_int(-1)
            result = ask(base.encode(), byref(found), version, flags, byref(status))
            answer = [result, status.value, at.get(found.value, "?") if found.value else ""]
            answers[f"{base} {version} {flags}"] = answer
print(json.dumps([answers, cuda.cuInit(0)]))
"""
#: NVIDIA's runtime: the versions it reports, and what its first calls return. The program keeps
#: the driver itself: the runtime closes it where no GPU is found, and a thread that libcuda of 555
#: has started by then may still run in it, which killed 18 of 3,000 programs under load.
RUN = """
import ctypes, json, sys
from ctypes import byref, c_int, c_size_t, c_void_p
driver = ctypes.CDLL("libcuda.so.1")
runtime, n, at = ctypes.CDLL(json.load(sys.stdin)), c_int(-1), c_void_p()
said = []
for name in ("cudaRuntimeGetVersion", "cudaDriverGetVersion", "cudaGetDeviceCount"):
    said += [name, getattr(runtime, name)(byref(n)), n.value]
said += ["cudaMalloc", runtime.cudaMalloc(byref(at), c_size_t(1 << 20)), at.value]
said += ["cudaFree", runtime.cudaFree(c_void_p()), runtime.cudaGetLastError()]
print(json.dumps(said))
"""


def test_each_driver_branch_that_was_fetched_is_used() -> None:
    if not DRIVERS:
        pytest.skip("no real driver here: run `make drivers`")
    assert len(DRIVERS) >= 3


@pytest.fixture(params=DRIVERS, ids=lambda driver: driver.version)
def driver(request: pytest.FixtureRequest) -> Driver:
    found: Driver = request.param
    return found


@pytest.fixture(scope="session")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the fake driver."""
    into = tmp_path_factory.mktemp("fake")
    fakecuda.build(into)
    return into


@pytest.fixture
def home(place: Path, native: Path) -> Path:
    """A container with a cap."""
    furnish(place / "home", native, (ContainerCard(UUID, CAP_MIB),))
    return place / "home"


def view(folders: list[Path], home: Path | None) -> dict[str, str]:
    """What a program sees: libraries of these folders, and ours before them where `home` is."""
    found = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": ":".join(map(str, folders))}
    return found | ({"LD_PRELOAD": " ".join(preloaded(home))} if home is not None else {})


def folders(driver: Driver) -> list[Path]:
    return [driver.library(name).parent for name in LIBRARIES]


def asked(code: str, given: object, environment: dict[str, str]) -> object:
    done = subprocess.run(
        [sys.executable, "-I", "-c", code],
        input=json.dumps(given),
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_committed_names_are_those_of_the_library(driver: Driver, library: str) -> None:
    assert committed(library)[driver.version] == exported(driver.library(library))


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_symbol_of_the_driver_is_found_and_functions_are_ours(
    driver: Driver, library: str, home: Path
) -> None:
    kinds = exported(driver.library(library))
    given = [f"{library}.so.1", sorted(kinds)]
    found = asked(RESOLVE, given, view(folders(driver), home))
    assert isinstance(found, dict)
    ours = str(home / "lib" / f"{library}.so.1")
    expected = {True: ours, False: str(driver.library(library).parent / f"{library}.so.1")}
    assert found == {name: expected[kind == "T"] for name, kind in kinds.items()}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_name_that_the_driver_lacks_is_not_found_behind_ours_either(
    driver: Driver, library: str, home: Path
) -> None:
    """Programs choose a variant by its name: Numba takes `cuCtxSynchronize_v2` where it exists."""
    listed = (HERE / f"names_{'cuda' if library == 'libcuda' else 'nvml'}.txt").read_text().split()
    newer = sorted(set(listed) - exported(driver.library(library)).keys())
    assert newer
    found = asked(RESOLVE, [f"{library}.so.1", newer], view(folders(driver), home))
    assert found == dict.fromkeys(newer, "")


def test_cu_get_proc_address_answers_the_same_function_behind_ours(
    driver: Driver, home: Path
) -> None:
    names = [name for name, kind in exported(driver.library("libcuda")).items() if kind == "T"]
    bare = asked(ASK, sorted(names), view(folders(driver), None))
    shadowed = asked(ASK, sorted(names), view(folders(driver), home))
    assert shadowed == bare
    assert isinstance(bare, list)
    answers, status = bare
    assert sum(1 for _, _, name in answers.values() if name not in ("", "?")) > 1000
    assert [key for key, (_, _, name) in answers.items() if name == "?"] == []
    assert status == 100


def test_the_cuda_runtime_says_the_same_behind_ours(
    driver: Driver, home: Path, runtime: Runtime
) -> None:
    library = str(runtime.home / "lib" / runtime.shared)
    bare = asked(RUN, library, view(folders(driver), None))
    assert asked(RUN, library, view(folders(driver), home)) == bare
    assert isinstance(bare, list)
    assert bare[2] // 1000 == int(runtime.shared.rpartition(".")[2])
    assert bare[5] > 12000, "the driver was found"


@pytest.mark.parametrize("arguments", [(), ("-L",), ("-q",)], ids=["table", "-L", "-q"])
def test_nvidia_smi_says_the_same_behind_ours_without_a_gpu(
    driver: Driver, home: Path, arguments: tuple[str, ...]
) -> None:
    def says(home: Path | None) -> tuple[int, str]:
        done = subprocess.run(
            [driver.smi, *arguments],
            env=view(folders(driver), home),
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    bare = says(None)
    assert bare[1]
    assert says(home) == bare


def test_nvidia_smi_shows_the_cap(driver: Driver, home: Path, place: Path, fake: Path) -> None:
    """The real program on a library that answers: one card of 16 GiB."""
    fakecuda.Card(place / "card")

    def says(home: Path | None, *arguments: str) -> str:
        environment = view([fake], home) | {"FAKECUDA_STATE": str(place / "card")}
        done = subprocess.run(
            [driver.smi, *arguments], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    query = ("--query-gpu=uuid,memory.total", "--format=csv,noheader")
    assert says(None, *query) == f"{UUID}, 16384 MiB\n"
    assert says(home, *query) == f"{UUID}, {CAP_MIB} MiB\n"
    assert says(home, "-L") == says(None, "-L")
    assert "Fake GPU" in says(home, "-L")
