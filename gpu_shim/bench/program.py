"""A tenant as a process. Run as a file: `program.py JOB`, a JSON object; see `JOBS`.

It prints that it is ready, reads a monotonic time from its input, does its job, and prints one JSON
object. Kernels are PTX, compiled by the driver, so the CUDA toolkit is not needed. `burn` compares
its result with a number that it never reaches. The compiler would remove the whole loop if it could
tell that no result is equal, as with NaN.
"""

import ctypes
import json
import sys
import time
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from typing import Any

MIB = 1 << 20
#: Runs that are logged, by start and end on the card's clock.
MAX_LOGGED = 1 << 16
PTX = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry empty() { ret; }

.visible .entry spin(.param .u64 ns, .param .u64 log)
{
  .reg .u64 %start, %now, %end, %at;
  .reg .pred %more, %quiet;
  mov.u64 %start, %globaltimer;
  ld.param.u64 %end, [ns];
  add.u64 %end, %end, %start;
AGAIN:
  mov.u64 %now, %globaltimer;
  setp.lt.u64 %more, %now, %end;
  @%more bra AGAIN;
  ld.param.u64 %at, [log];
  setp.eq.u64 %quiet, %at, 0;
  @%quiet bra DONE;
  st.global.u64 [%at], %start;
  st.global.u64 [%at+8], %now;
DONE:
  ret;
}

.visible .entry burn(.param .u64 rounds, .param .u64 log)
{
  .reg .u64 %start, %now, %left, %at;
  .reg .u32 %thread, %block;
  .reg .f32 %x, %y;
  .reg .pred %more, %quiet, %odd;
  mov.u64 %start, %globaltimer;
  mov.u32 %thread, %tid.x;
  mov.u32 %block, %ctaid.x;
  cvt.rn.f32.u32 %x, %thread;
  mov.f32 %y, 0f3F7FFFFF;
  ld.param.u64 %left, [rounds];
AGAIN:
  fma.rn.f32 %x, %x, %y, %y;
  fma.rn.f32 %x, %x, %y, %y;
  fma.rn.f32 %x, %x, %y, %y;
  fma.rn.f32 %x, %x, %y, %y;
  sub.u64 %left, %left, 1;
  setp.ne.u64 %more, %left, 0;
  @%more bra AGAIN;
  bar.sync 0;
  mov.u64 %now, %globaltimer;
  ld.param.u64 %at, [log];
  setp.eq.u64 %quiet, %at, 0;
  or.b32 %thread, %thread, %block;
  setp.ne.u32 %more, %thread, 0;
  setp.eq.f32 %odd, %x, 0fBF800000;
  or.pred %more, %more, %quiet;
  not.pred %odd, %odd;
  and.pred %more, %more, %odd;
  @%more bra DONE;
  st.global.u64 [%at], %start;
  st.global.u64 [%at+8], %now;
DONE:
  ret;
}
\0"""
#: Threads of a block: one for kernels that only wait; the maximum for those that compute, with one
#: block per multiprocessor. Several blocks on one would not end together, and the log is of the
#: first.
N_THREADS = {"empty": 1, "spin": 1, "burn": 1024}
MULTIPROCESSOR_COUNT = 16


class Gpu:
    """The first card: its context, our kernels, and a log in memory shared with the card."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context, module = c_void_p(), c_void_p()
        if self.cuda.cuInit(0) or self.cuda.cuDevicePrimaryCtxRetain(byref(context), 0):
            sys.exit("no GPU")
        self.must(self.cuda.cuCtxSetCurrent(context))
        count = c_int(1)
        self.must(self.cuda.cuDeviceGetAttribute(byref(count), MULTIPROCESSOR_COUNT, 0))
        self.n_blocks = {name: count.value if n > 1 else 1 for name, n in N_THREADS.items()}
        self.must(self.cuda.cuModuleLoadData(byref(module), PTX))
        self.kernels = {name: self._kernel(module, name) for name in N_THREADS}
        host = c_void_p()
        self.must(self.cuda.cuMemHostAlloc(byref(host), c_size_t(16 * MAX_LOGGED), 3))
        self.log = (c_uint64 * (2 * MAX_LOGGED)).from_address(host.value or 0)
        self.log_at = c_uint64()
        self.must(self.cuda.cuMemHostGetDevicePointer_v2(byref(self.log_at), host, 0))
        self.n_logged = 0

    def must(self, status: int) -> None:
        """Exit with the driver's error if there is one."""
        if status:
            sys.exit(f"the driver says {status}")

    def _kernel(self, module: c_void_p, name: str) -> c_void_p:
        kernel = c_void_p()
        self.must(self.cuda.cuModuleGetFunction(byref(kernel), module, name.encode()))
        return kernel

    def launch(self, name: str, amount: int = 0, stream: Any = None) -> None:
        """Queue a kernel; it is logged while there is room."""
        at = c_uint64(self.log_at.value + 16 * self.n_logged if self.n_logged < MAX_LOGGED else 0)
        self.n_logged += 1
        values = (c_uint64(amount), at)
        arguments = (c_void_p * 2)(*(ctypes.addressof(each) for each in values))
        shape = (self.n_blocks[name], 1, 1, N_THREADS[name], 1, 1, 0)
        self.must(
            self.cuda.cuLaunchKernel(self.kernels[name], *shape, stream, arguments, c_void_p())
        )

    def stream(self) -> c_void_p:
        """A new stream."""
        stream = c_void_p()
        self.must(self.cuda.cuStreamCreate(byref(stream), 1))
        return stream

    def graph(self, name: str, amount: int, n_nodes: int) -> tuple[c_void_p, c_void_p]:
        """An instantiated graph of `n_nodes` kernels, and the stream on which it was captured."""
        stream, graph, instance = self.stream(), c_void_p(), c_void_p()
        self.must(self.cuda.cuStreamBeginCapture_v2(stream, 2))
        for _ in range(n_nodes):
            self.launch(name, amount, stream)
        self.must(self.cuda.cuStreamEndCapture(stream, byref(graph)))
        self.must(self.cuda.cuGraphInstantiateWithFlags(byref(instance), graph, c_uint64(0)))
        return instance, stream

    def wait(self, stream: Any = None) -> None:
        """Wait until the stream's queued work has ended."""
        self.must(self.cuda.cuStreamSynchronize(stream))

    def runs(self) -> list[list[int]]:
        """[start, end] of logged runs, in nanoseconds of the card's clock."""
        n = min(self.n_logged, MAX_LOGGED)
        pairs = ([self.log[2 * at], self.log[2 * at + 1]] for at in range(n))
        return [pair for pair in pairs if pair[1]]


def rate(gpu: Gpu, begin: float, job: dict[str, Any]) -> dict[str, Any]:
    """Steps of `at_once` kernels on `n_streams`, or of one graph of as many, for `seconds`."""
    kernel, amount, at_once = job["kernel"], job["amount"], job.get("at_once", 4)
    streams = [gpu.stream() for _ in range(job.get("n_streams", 1))]
    graph = gpu.graph(kernel, amount, at_once) if job.get("is_graph") else None
    time.sleep(max(0.0, begin + job.get("after_s", 0.0) - time.monotonic()))
    n_steps, ends = 0, begin + job["seconds"]
    while time.monotonic() < ends:
        if graph is not None:
            gpu.must(gpu.cuda.cuGraphLaunch(*graph))
            gpu.wait(graph[1])
        else:
            for at in range(at_once):
                gpu.launch(kernel, amount, streams[at % len(streams)])
            for stream in streams:
                gpu.wait(stream)
        n_steps += 1
    return {"n": n_steps * at_once, "runs": gpu.runs()}


def serve(gpu: Gpu, begin: float, job: dict[str, Any]) -> dict[str, Any]:
    """Requests of one kernel at a fixed rate; the latency of each from its due time, in ms."""
    took, n = [], int(job["per_s"] * job["seconds"])
    for at in range(n):
        due = begin + at / job["per_s"]
        time.sleep(max(0.0, due - time.monotonic()))
        gpu.launch("spin", job["amount"])
        gpu.wait()
        took.append((time.monotonic() - due) * 1000)
    return {"took_ms": took}


def launches(gpu: Gpu, begin: float, job: dict[str, Any]) -> dict[str, Any]:
    """The cost of launching an empty kernel for the calling thread, in ns, by a loop in C."""
    del begin
    loop = ctypes.CDLL(job["loop"]).bench_launches
    loop.restype = c_uint64
    launch = ctypes.cast(gpu.cuda.cuLaunchKernel, c_void_p)
    wait = ctypes.cast(gpu.cuda.cuStreamSynchronize, c_void_p)
    took = [loop(launch, wait, gpu.kernels["empty"], c_uint64(job["n"])) for _ in range(5)]
    return {"launch_ns": min(took) / job["n"]}


def fill(gpu: Gpu, begin: float, job: dict[str, Any]) -> dict[str, Any]:
    """Allocate memory in one way until it is refused; MiB allocated, error, reported sizes."""
    del begin
    step, ways, statuses = job["step_mib"] * MIB, _ways(gpu), list[int]()
    total, left = c_size_t(), c_size_t()
    gpu.must(gpu.cuda.cuMemGetInfo_v2(byref(left), byref(total)))
    while (status := ways[job["way"]](step)) == 0 and len(statuses) < 1 << 16:
        statuses.append(status)
    return {
        "taken_mib": len(statuses) * job["step_mib"],
        "status": status,
        "free_mib": left.value // MIB,
        "total_mib": total.value // MIB,
    }


def _ways(gpu: Gpu) -> dict[str, Any]:
    def plain(n: int) -> int:
        return int(gpu.cuda.cuMemAlloc_v2(byref(c_uint64()), c_size_t(n)))

    def managed(n: int) -> int:
        return int(gpu.cuda.cuMemAllocManaged(byref(c_uint64()), c_size_t(n), 1))

    def queued(n: int) -> int:
        return int(gpu.cuda.cuMemAllocAsync(byref(c_uint64()), c_size_t(n), None))

    def physical(n: int) -> int:
        want = (c_int * 16)(1, 0, 1, 0)
        return int(gpu.cuda.cuMemCreate(byref(c_uint64()), c_size_t(n), want, c_uint64(0)))

    return {"plain": plain, "managed": managed, "queued": queued, "physical": physical}


JOBS = {"rate": rate, "serve": serve, "launches": launches, "fill": fill}


def main(job: dict[str, Any]) -> None:
    """Do one job."""
    gpu = Gpu()
    print("ready", flush=True)
    begin = float(sys.stdin.readline())
    print(json.dumps(JOBS[job["do"]](gpu, begin, job)), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
