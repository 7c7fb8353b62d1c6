"""NVIDIA's own runtime finds ours, and its headers agree with what we assume of the driver.

The runtime, shared and static, of CUDA 12 and 13 comes from PyPI. It asks for all functions it will
ever use before it finds that the card is not one of NVIDIA's, and that is what counts here.
"""

import re
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpu_shim.native.build import CUDA_SOURCES, HERE, compile_c
from gpu_shim.native.generate import hooks_in
from tests.integration.gpu_shim.containers import Scene
from tests.integration.gpu_shim.test_lookup import OURS

SITE = Path(sysconfig.get_path("purelib")) / "nvidia"
HOOKS = set(hooks_in([HERE / name for name in CUDA_SOURCES]))
LISTED = set((HERE / "names_cuda.txt").read_text().split())
#: Asked for by one name, answered by the newest variant.
ENDING = re.compile(r"(_v\d)?(_pt[sd][sz])?$")


@dataclass(frozen=True)
class Runtime:
    """A runtime as it comes from PyPI."""

    home: Path
    shared: str
    n_names: int

    @property
    def headers(self) -> Path:
        return self.home / "include"


RUNTIMES = {
    "12.9": Runtime(SITE / "cuda_runtime", "libcudart.so.12", 400),
    "13.5": Runtime(SITE / "cu13", "libcudart.so.13", 400),
}
PROBE = "int cudaGetDeviceCount(int *n);\n" + (
    '__attribute__((visibility("default"))) int probe(void)'
    " { int n; return cudaGetDeviceCount(&n); }\n"
)


@pytest.fixture(params=RUNTIMES)
def runtime(request: pytest.FixtureRequest) -> Runtime:
    found = RUNTIMES[request.param]
    if not found.headers.exists():
        pytest.skip(f"CUDA {request.param}'s runtime is not installed")
    return found


@pytest.mark.parametrize("is_shared", [True, False], ids=["shared", "static"])
async def test_every_function_the_runtime_finds_is_ours(
    scene: Scene, tmp_path: Path, runtime: Runtime, is_shared: bool
) -> None:
    scene.container("a")
    library, asked = tmp_path / "libprobe.so", tmp_path / "asked"
    (tmp_path / "probe.c").write_text(PROBE)
    folder = runtime.home / "lib"
    archives = [*folder.glob("libcudart_static.a"), *folder.glob("libculibos.a")]
    linked = [folder / runtime.shared] if is_shared else archives
    compile_c(library, [tmp_path / "probe.c", *linked, Path("-lrt")], f"-Wl,-rpath,{folder}")
    code = f"""
{OURS}
ctypes.CDLL({str(library)!r}).probe()
told = []
for line in open({str(asked)!r}).read().splitlines():
    name, flags, asker = line.split(" ")
    found = c_void_p()
    cuda.cuGetProcAddress_v2(name.encode(), byref(found), 13000, c_uint64(int(flags)), NOTHING)
    told.append([name, int(flags), asker, owner(found.value) if found.value else "nobody's"])
tell(told)
"""
    told = await scene.ask("a", code, FAKECUDA_ASKED=str(asked))
    assert len(told) >= runtime.n_names
    assert {flags for _, flags, _, _ in told} == {0, 2}
    assert {asker for *_, asker, _ in told} == {str(scene.home("a") / "lib" / "libcuda.so.1")}
    assert {name for name, _, _, whose in told if whose == "the driver's"} == set()
    bases = {ENDING.sub("", hook) for hook in HOOKS}
    found = {name for name, _, _, whose in told if whose == "ours"}
    assert {name for name, *_ in told} & bases <= found


def names_in(headers: Path) -> set[str]:
    """Every function that the headers declare, in all its variants."""
    text = "".join((headers / each).read_text() for each in ("cuda.h", "cudaGL.h", "cudaEGL.h"))
    declared = set(re.findall(r"CUDAAPI\s+(cu[A-Z]\w*)\s*\(", text))
    variants = set(re.findall(r"#define\s+cu\w+\s+(cu[A-Z]\w*_v\d+)\s", text))
    for ending, names in (("_ptsz", "PTSZ"), ("_ptds", "PTDS")):
        found = re.findall(rf"__CUDA_API_{names}\((cu[A-Z]\w*)\)", text)
        variants |= {name + ending for name in found} | set(found)
    return declared | variants


def test_no_function_of_the_headers_is_missing_from_our_table(runtime: Runtime) -> None:
    assert names_in(runtime.headers) - LISTED == set()


#: What takes memory or time by its name and is passed on all the same, and why.
PASSED_ON = {
    r"cuMemAllocHost(_v2)?|cuMemHostAlloc": "the host's memory",
    r"cuMemGetAllocation\w+|cuMemGetMemPool|cuMemRangeGet\w+|cuPointer\w+": "only asks",
    r"cuGraphMemAllocNodeGetParams|cuTensorMapSetAllocationClass": "only asks or sets",
    r"cuStreamGet\w+|cuFunc\w+|cuKernel\w+|cuOccupancy\w+": "only asks or sets",
    r"cuLaunchHostFunc\w*": "runs on the host",
    r"cuIpcOpenMemHandle(_v2)?|cuMemImportFromShareableHandle": "its owner pays",
    r"cuMemPoolImport\w+|cuLogicalEndpointImport": "its owner pays",
    r"cuImportExternal\w+|cuExternalMemoryGet\w+": "NVML's figures charge it",
    r"cuMemsetD(2D)?(8|16|32)|cuMemcpyDtoD(Async)?": "of 32 bits, from before CUDA 4",
    r"cuGraphAddMemsetNode": "a graph's node, which the graph's launch gates",
}
TAKES = re.compile(r"cu(\w*Alloc\w*|\w*Launch\w*|Memset\w+|MemcpyDtoD\w*|\w+Import\w*)(_v\d)?")


def test_what_takes_memory_or_time_is_ours_or_passed_on_for_a_reason() -> None:
    reasons = re.compile("|".join(PASSED_ON))
    suspects = {name for name in LISTED if TAKES.fullmatch(name)}
    left = {
        name
        for name in suspects - HOOKS
        if not reasons.fullmatch(re.sub(r"_pt[sd][sz]$", "", name))
    }
    assert left == set()


LAYOUTS = """
#include <stddef.h>
#include "cuda.h"
#define IS(expression) _Static_assert(expression, #expression)
IS(sizeof(CUdeviceptr) == 8);
IS(offsetof(CUlaunchConfig, hStream) == 32);
IS(offsetof(CUmemAllocationProp, location) == 8);
IS(offsetof(CUmemLocation, id) == 4);
IS(CU_MEM_LOCATION_TYPE_DEVICE == 1);
IS(offsetof(CUDA_MEM_ALLOC_NODE_PARAMS, bytesize) == 104);
IS(offsetof(CUgraphNodeParams, alloc) == 16);
IS(CU_GRAPH_NODE_TYPE_MEM_ALLOC == 10);
IS(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT == 5);
IS(CU_MEMPOOL_ATTR_USED_MEM_CURRENT == 7);
IS(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT == 2);
IS(CU_POINTER_ATTRIBUTE_MEMORY_TYPE == 2);
IS(CU_MEMORYTYPE_DEVICE == 2);
IS(sizeof(CUDA_ARRAY_DESCRIPTOR) == 24);
IS(offsetof(CUDA_ARRAY3D_DESCRIPTOR, NumChannels) == 28);
IS(CUDA_ERROR_OUT_OF_MEMORY == 2);
IS(CUDA_ERROR_NOT_SUPPORTED == 801);
IS(CU_STREAM_CAPTURE_MODE_RELAXED == 2);
"""


def test_layouts_and_numbers_are_those_of_the_headers(runtime: Runtime, tmp_path: Path) -> None:
    source = tmp_path / "layouts.c"
    source.write_text(LAYOUTS)
    compile_c(tmp_path / "layouts.so", [source], f"-I{runtime.headers}")
