"""A workload as a process: it launches kernels while it is busy. Run as a file, not imported.

`worker.py uuid` prints the card's UUID. `worker.py work [[from, to], ...]` prints that it is ready,
reads a monotonic time from its input, keeps the card busy in these seconds after it, and then waits
to be ended.
"""

import ctypes
import json
import sys
import time
from ctypes import byref, c_void_p

KERNEL = b"spin_1000"
#: Kernels that are queued before it waits for them, as at the end of a program's step.
AT_ONCE = 3


def main(what: str, *arguments: str) -> None:
    """Run one of the two commands."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context = c_void_p()
    if cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(byref(context), 0):
        sys.exit("no GPU")
    if what == "uuid":
        raw = (ctypes.c_ubyte * 16)()
        cuda.cuDeviceGetUuid_v2(raw, 0)
        text = bytes(raw).hex()
        parts = (text[:8], text[8:12], text[12:16], text[16:20], text[20:])
        print("GPU-" + "-".join(parts))
        return
    work(cuda, json.loads(arguments[0]))


def work(cuda: ctypes.CDLL, spans: list[list[float]]) -> None:
    """Keep the card busy within the spans."""
    nothing, module, kernel = c_void_p(None), c_void_p(), c_void_p()
    cuda.cuModuleLoadData(byref(module), nothing)
    if cuda.cuModuleGetFunction(byref(kernel), module, KERNEL):
        sys.exit("the driver has no kernels named by their time")
    print("ready", flush=True)
    begin = float(sys.stdin.readline())
    for start, end in spans:
        time.sleep(max(0.0, begin + start - time.monotonic()))
        while time.monotonic() < begin + end:
            for _ in range(AT_ONCE):
                cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, nothing, nothing, nothing)
            cuda.cuStreamSynchronize(nothing)
    sys.stdin.readline()


if __name__ == "__main__":
    main(*sys.argv[1:])
