"""A fake driver with one virtual card, for tests: builds it and reads its log."""

import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpu_shim.native.build import HERE as NATIVE
from gpu_shim.native.build import compile_c

HERE: Final = Path(__file__).resolve().parent
#: CUDA_ERROR_OUT_OF_MEMORY.
OUT_OF_MEMORY: Final = 2
UUID: Final = "GPU-00112233-4455-6677-8899-aabbccddeeff"
SECOND: Final = UUID[:-2] + "01"
MIB: Final = 1 << 20
_MAX_PROCESSES: Final = 256
_MAX_RUNS: Final = 262144
_RUNS_AT: Final = 32 + 16 * _MAX_PROCESSES
_NVML_NOT_SUPPORTED: Final = 3
#: The engine's state follows the log.
_SIZE: Final = _RUNS_AT + 24 * _MAX_RUNS + (1 << 20)


def build(into: Path, compiler: str = "gcc") -> None:
    """Build the two libraries in a folder."""
    into.mkdir(parents=True, exist_ok=True)
    cuda_names = (NATIVE / "names_cuda.txt").read_text().split()
    nvml_names = (NATIVE / "names_nvml.txt").read_text().split()
    symbols, nvml_symbols = into / "symbols.c", into / "nvml_symbols.c"
    symbols.write_text(
        '#include "cuda.h"\n'
        + _stubs(cuda_names, "NOT_SUPPORTED")
        + "const struct fake_symbol fake_symbols[] = {\n"
        + "".join(f'    {{"{name}", {name}}},\n' for name in cuda_names)
        + f"}};\nconst int fake_n_symbols = {len(cuda_names)};\n"
    )
    nvml_symbols.write_text(_stubs(nvml_names, str(_NVML_NOT_SUPPORTED)))
    own = ("-fvisibility=default", f"-I{HERE}", "-Wl,-Bsymbolic", "-Wno-attribute-alias")
    parts = ("device.c", "engine.c", "cuda.c", "lookup.c", "streams.c", "copies.c")
    cuda = [symbols, *(HERE / name for name in parts)]
    compile_c(into / "libcuda.so.1", cuda, "-Wl,-soname,libcuda.so.1", *own, compiler=compiler)
    nvml = [nvml_symbols, *(HERE / name for name in ("device.c", "engine.c", "nvml.c"))]
    soname = "-Wl,-soname,libnvidia-ml.so.1"
    compile_c(into / "libnvidia-ml.so.1", nvml, soname, *own, compiler=compiler)


def _stubs(names: list[str], status: str) -> str:
    """C source in which each name is an unsupported function, unless another source defines it."""
    alias = '__attribute__((weak, alias("fake_stub"))) void'
    return f"int fake_stub(void) {{ return {status}; }}\n" + "".join(
        f"{alias} {name}(void);\n" for name in names
    )


@dataclass(slots=True, frozen=True)
class Run:
    """One kernel or copy that ran on the card; times in nanoseconds of the monotonic clock."""

    pid: int
    tag: int
    card: int
    start_ns: int
    end_ns: int


class Card:
    """The virtual card: a file that all processes map."""

    def __init__(self, path: Path, total_mib: int = 16384, context_mib: int = 0) -> None:
        self.path = path
        path.write_bytes(struct.pack("<QQ", total_mib * MIB, context_mib * MIB))
        os.truncate(path, _SIZE)
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _SIZE)

    @property
    def used_mib(self) -> int:
        """MiB of the card that processes have allocated."""
        found = (
            struct.unpack_from("<IIQ", self._map, 32 + 16 * at) for at in range(_MAX_PROCESSES)
        )
        return sum(int(n_bytes) for pid, _, n_bytes in found if pid) // MIB

    def give(self, pid: int, n_bytes: int) -> None:
        """Make `pid` the card's first process, with `n_bytes` of its memory."""
        struct.pack_into("<IIQ", self._map, 32, pid, 0, n_bytes)

    def ail(self, xid: int = 0, recovery: int = 0, is_lost: bool = False) -> None:
        """Make NVML report an error once, and the recovery action until the next call."""
        struct.pack_into("<Q", self._map, 16, xid | recovery << 16 | int(is_lost) << 31)

    def runs(self) -> Iterator[Run]:
        """All runs, in the order in which they ended."""
        (n_runs,) = struct.unpack_from("<Q", self._map, 24)
        for at in range(min(n_runs, _MAX_RUNS)):
            yield Run(*struct.unpack_from("<IHHQQ", self._map, _RUNS_AT + 24 * at))
