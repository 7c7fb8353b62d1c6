"""Builds the native libraries with gcc, from the sources beside this file.

The CUDA toolkit is not needed. No symbol newer than glibc 2.17 is used, so one build serves every
image.
"""

import subprocess
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Final

from gpu_shim.native import generate

HERE: Final = Path(__file__).resolve().parent
#: The lowest first. A file uses files of lower layers only: a test reads the symbols of each.
CUDA_LAYERS: Final = (
    ("kind_cuda.c", "table.c"),
    ("driver.c",),
    ("client.c",),
    ("account.c", "pace.c"),
    ("drain.c",),
    ("gate.c",),
    ("pools.c", "process.c"),
    ("contexts.c", "copies.c", "launches.c", "lookup.c", "memory.c"),
)
CUDA_SOURCES: Final = tuple(chain.from_iterable(CUDA_LAYERS))
NVML_SOURCES: Final = ("nvml.c", "driver.c")
FLAGS: Final = (
    "-std=c11", "-O2", "-g", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden", "-fno-plt",
    "-Wall", "-Wextra", "-Werror", "-fno-stack-protector", "-Wl,-z,now", "-Wl,--hash-style=both",
)  # fmt: skip
#: On an old glibc these contain functions that libc later absorbed; on a new one they are empty.
LIBRARIES: Final = ("-Wl,--no-as-needed", "-l:libpthread.so.0", "-l:libdl.so.2")


class BuildError(Exception):
    """The compiler failed; the message is its output."""


def build(into: Path, compiler: str = "gcc", flags: Sequence[str] = ()) -> None:
    """Build `libcuda.so.1`, `libnvidia-ml.so.1` and `libballast-pages.so` in a folder.

    The compiler may be a cross-compiler: x86-64 and aarch64 are supported.
    """
    into.mkdir(parents=True, exist_ok=True)
    cuda, nvml = ("names_cuda.txt", CUDA_SOURCES), ("names_nvml.txt", NVML_SOURCES)
    _library(into / "libcuda.so.1", *cuda, compiler, flags)
    _library(into / "libnvidia-ml.so.1", *nvml, compiler, flags)
    pages = [HERE / "pages.c", HERE / "table.c"]
    compile_c(into / "libballast-pages.so", pages, compiler=compiler)


def compile_c(output: Path, sources: list[Path], *flags: str, compiler: str = "gcc") -> None:
    """One shared library from C sources; raises BuildError."""
    command = [compiler, *FLAGS, *flags, "-o", str(output), *map(str, sources), *LIBRARIES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise BuildError(done.stderr)


def _library(
    output: Path, names: str, sources: tuple[str, ...], compiler: str, flags: Sequence[str]
) -> None:
    work = output.with_name(f"{output.name}.d")
    work.mkdir(exist_ok=True)
    made, header = work / "names.c", work / "names.h"
    files = [HERE / name for name in sources]
    generate.main([str(HERE / names), str(made), str(header), *map(str, files)])
    places = (f"-I{work}", f"-I{HERE}", "-include", "oldest.h", f"-Wl,-soname,{output.name}")
    compile_c(output, [made, *files], *places, *flags, compiler=compiler)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
