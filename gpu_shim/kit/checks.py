"""`checks WHAT`: properties of a driver, before anything is measured on it."""

import asyncio
import ctypes
import os
import platform
import re
import shutil
import subprocess
import sys
from ctypes import byref, c_int, c_uint64, c_void_p
from pathlib import Path
from typing import Final

from gpu_shim.arbiter.container import ContainerCard
from gpu_shim.kit.contained import served
from gpu_shim.kit.place import containers, driver, open_nvml
from gpu_shim.kit.results import Result, tell
from gpu_shim.native.build import HERE as NATIVE

_CAP_MIB: Final = 16384
_CUDA: Final = 13000
_ENDING: Final = re.compile(r"(?:_v\d)?(?:_pt[sd][sz])?$")


def _open(name: str) -> ctypes.CDLL:
    folder = driver()
    return ctypes.CDLL(str(folder / name) if folder else name)


def _exports(name: str) -> set[str]:
    """Functions that a driver's library exports, as listed by `nm`."""
    _open(name)
    stem = name.partition(".so")[0]
    maps = Path("/proc/self/maps").read_text("utf-8").splitlines()
    path = next(line.split()[-1] for line in maps if f"/{stem}.so" in line)
    listed = subprocess.run(  # noqa: S603
        ["nm", "-D", "--defined-only", path],  # noqa: S607
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    lines = [line.split() for line in listed.splitlines()]
    return {words[2].split("@")[0] for words in lines if len(words) > 2 and words[1] in "TW"}


def machine() -> None:
    """Report the machine on which the other steps are measured."""
    tell(Result("kernel, Python", f"{platform.release()}, {platform.python_version()}", 1))
    smi = shutil.which("nvidia-smi")
    if smi is None:
        tell(Result("driver", "no nvidia-smi", 1))
        return
    ask = "--query-gpu=name,driver_version,memory.total,compute_mode,mig.mode.current,uuid"
    done = subprocess.run(  # noqa: S603
        [smi, ask, "--format=csv,noheader"], capture_output=True, text=True, check=False
    )
    tell(Result("driver", done.stdout.strip(), len(done.stdout.splitlines()), not done.returncode))


def names() -> None:
    """Report functions of the driver that our libraries lack."""
    tables = {"libcuda.so.1": "names_cuda.txt", "libnvidia-ml.so.1": "names_nvml.txt"}
    for library, table in tables.items():
        ours = set((NATIVE / table).read_text("utf-8").split())
        theirs = {name for name in _exports(library) if name.startswith(("cu", "nvml"))}
        lacks = sorted(theirs - ours)
        message = f"{len(theirs)} functions, we lack {len(lacks)}: {' '.join(lacks)}"
        tell(Result(library, message, len(theirs), not lacks))


def lookup() -> None:
    """Check that every pointer of cuGetProcAddress belongs to an exported name."""
    cuda = _open("libcuda.so.1")
    exported = {
        ctypes.cast(getattr(cuda, name), c_void_p).value
        for name in _exports("libcuda.so.1")
        if name.startswith("cu")
    }
    listed = (NATIVE / "names_cuda.txt").read_text("utf-8").split()
    for flags in (0, 1, 2):
        n_found, strange = 0, list[str]()
        for base in sorted({_ENDING.sub("", name) for name in listed}):
            found, status = c_void_p(), c_int()
            result = cuda.cuGetProcAddress_v2(
                base.encode(), byref(found), _CUDA, c_uint64(flags), byref(status)
            )
            if not result and found.value:
                n_found += 1
                strange += [] if found.value in exported else [base]
        message = f"{n_found} found, not by any exported name: {' '.join(strange) or 'none'}"
        tell(Result(f"flags {flags}", message, n_found, not strange))


def contexts() -> None:
    """Measure a context's memory, and whether an event can be queried from another context."""
    cuda, nvml = _open("libcuda.so.1"), open_nvml()
    if cuda.cuInit(0) or nvml is None:
        tell(Result("context", "no GPU, or no NVML", 0))
        return
    made, event, now = (c_void_p(), c_void_p()), c_void_p(), c_void_p()
    uuid = nvml.devices()[0].uuid
    for each in made:
        cuda.cuCtxCreate_v2(byref(each), 0, 0)
        n_mib = nvml.processes(uuid).get(os.getpid(), 0) >> 20
        tell(Result("this process by NVML, with one context more", f"{n_mib} MiB", n_mib))
    cuda.cuCtxSetCurrent(made[0])
    codes = [cuda.cuEventCreate(byref(event), 2), cuda.cuEventRecord(event, None)]
    codes += [cuda.cuCtxSynchronize(), cuda.cuCtxSetCurrent(made[1]), cuda.cuEventQuery(event)]
    cuda.cuCtxGetCurrent(byref(now))
    is_good = not any(codes) and now.value == made[1].value
    tell(Result("an event queried from another context", f"{codes}", 1, is_good))


async def _smi() -> None:
    command = shutil.which("nvidia-smi")
    if command is None:
        tell(Result("nvidia-smi", "is not there", 0))
        return
    with containers() as all_of_them:
        card = ContainerCard(all_of_them.uuid(), _CAP_MIB)
        async with served(all_of_them, {"a": ("1/2", "1", card)}):
            program = await asyncio.create_subprocess_exec(
                command,
                env=all_of_them.environment("a"),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            output = (await program.communicate())[0].decode(errors="replace")
    is_capped = not program.returncode and f"{_CAP_MIB}MiB" in output
    tell(Result("nvidia-smi in a container", output[-2000:], 1, is_capped))


def smi() -> None:
    """Check that nvidia-smi works behind our libraries, and shows the cap."""
    asyncio.run(_smi())


if __name__ == "__main__":
    checks = (machine, names, lookup, contexts, smi)
    {check.__name__: check for check in checks}[sys.argv[1]]()
