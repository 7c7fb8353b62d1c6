"""A program that uses the GPU, as tests run it: `python hostprogram.py CODE`.

CODE sees the names below; what it passes to `tell` comes back as one JSON line each.
"""

import ctypes
import json
import os
import signal
import sys
import threading
import time
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from typing import Any

MIB = 1 << 20
NOTHING = c_void_p(None)
cuda = ctypes.CDLL("libcuda.so.1")
SPARE = (os, signal, threading, time)


def tell(*what: Any) -> None:
    """One line of the answer."""
    print(json.dumps(what[0] if len(what) == 1 else what), flush=True)


def hear() -> str:
    """Wait for the test to say something."""
    return sys.stdin.readline().strip()


def begin() -> None:
    """Initialise, and make a context."""
    assert cuda.cuInit(0) == 0
    context = c_void_p()
    assert cuda.cuDevicePrimaryCtxRetain(byref(context), 0) == 0


def plain(n: int) -> tuple[int, int]:
    """(status, address) of an allocation."""
    at = c_uint64()
    return cuda.cuMemAlloc_v2(byref(at), c_size_t(n)), at.value


def managed(n: int) -> tuple[int, int]:
    at = c_uint64()
    return cuda.cuMemAllocManaged(byref(at), c_size_t(n), 1), at.value


def pitched(n: int) -> tuple[int, int]:
    at, pitch = c_uint64(), c_size_t()
    rows = max(1, n // 512)
    return cuda.cuMemAllocPitch_v2(
        byref(at), byref(pitch), c_size_t(512), c_size_t(rows), 4
    ), at.value


def queued(n: int) -> tuple[int, int]:
    at = c_uint64()
    return cuda.cuMemAllocAsync(byref(at), c_size_t(n), NOTHING), at.value


def array(n: int) -> tuple[int, int]:
    class Descriptor(ctypes.Structure):
        _fields_ = (("w", c_size_t), ("h", c_size_t), ("format", c_int), ("channels", c_int))

    at = c_uint64()
    want = Descriptor(max(1, n // 4), 0, 0x20, 1)
    return cuda.cuArrayCreate_v2(byref(at), byref(want)), at.value


def physical(n: int) -> tuple[int, int]:
    at, want = c_uint64(), (c_int * 16)(1, 0, 1, 0)
    return cuda.cuMemCreate(byref(at), c_size_t(n), want, c_uint64(0)), at.value


def free(way: str, at: int) -> int:
    """Give back what `way` took."""
    if way == "queued":
        return int(cuda.cuMemFreeAsync(c_uint64(at), NOTHING))
    if way == "array":
        return int(cuda.cuArrayDestroy(c_uint64(at)))
    if way == "physical":
        return int(cuda.cuMemRelease(c_uint64(at)))
    return int(cuda.cuMemFree_v2(c_uint64(at)))


def memory() -> tuple[int, int]:
    """(free, total) in MiB, as the driver says."""
    left, total = c_size_t(), c_size_t()
    assert cuda.cuMemGetInfo_v2(byref(left), byref(total)) == 0
    return left.value // MIB, total.value // MIB


def kernel(microseconds: int) -> Any:
    """A kernel that takes so long."""
    module, function = c_void_p(), c_void_p()
    assert cuda.cuModuleLoadData(byref(module), NOTHING) == 0
    name = f"spin_{microseconds}".encode()
    assert cuda.cuModuleGetFunction(byref(function), module, name) == 0
    return function


def launch(function: Any, stream: Any = NOTHING) -> int:
    """Launch a kernel once."""
    return int(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NOTHING, NOTHING))


def work(microseconds: int, seconds: float, at_once: int = 4) -> int:
    """Launch and wait, again and again; how many kernels that were."""
    function, n = kernel(microseconds), 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(at_once):
            n += launch(function) == 0
        cuda.cuStreamSynchronize(NOTHING)
    return n


if __name__ == "__main__":
    exec(sys.argv[1])
