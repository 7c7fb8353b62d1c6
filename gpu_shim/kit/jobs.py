"""`jobs.py JOB SECONDS`: the job of a tenant. Run as a file with the machine's own frameworks.

Output lines are JSON. Nothing of ours is imported: a job sees the libraries only as any program
does.
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

MIB = 1 << 20
#: Products of 8192 x 8192 that `ahead` queues at once: about 2.8 s on an H100.
AHEAD = 2000


def tell(**what: Any) -> None:
    """Print one line."""
    print(json.dumps(what), flush=True)


def loop(torch: Any, seconds: float, step: Callable[[], object], at_once: int = 1) -> None:
    """Repeat `step`, and report steps per second each second."""
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    tell(ready=True)
    begin = last = time.monotonic()
    n = 0
    while time.monotonic() - begin < seconds:
        for _ in range(at_once):
            step()
        n += at_once
        torch.cuda.synchronize()
        if time.monotonic() - last >= 1:
            tell(steps_per_s=round(n / (time.monotonic() - last), 2))
            n, last = 0, time.monotonic()


def encoder(torch: Any) -> tuple[Any, Any]:
    """A small transformer and its input."""
    layer = torch.nn.TransformerEncoderLayer(
        1024, 16, 4096, batch_first=True, dtype=torch.bfloat16, device="cuda", dropout=0.0
    )
    of = torch.randn(16, 512, 1024, dtype=torch.bfloat16, device="cuda")
    return torch.nn.TransformerEncoder(layer, 4), of


def gemm(seconds: float, at_once: int = 1) -> None:
    """Matrix products of about 1.4 ms on an H100."""
    torch = importlib.import_module("torch")
    a = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda")
    loop(torch, seconds, lambda: torch.mm(a, a), at_once)


def ahead(seconds: float) -> None:
    """Matrix products with seconds of work in the queue."""
    gemm(seconds, AHEAD)


def train(seconds: float) -> None:
    """Training steps."""
    torch = importlib.import_module("torch")
    net, x = encoder(torch)
    optimizer = torch.optim.AdamW(net.parameters())

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        net(x).float().pow(2).mean().backward()
        optimizer.step()

    loop(torch, seconds, step)


def _captured(torch: Any, net: Any, x: Any) -> Any:
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph, stream=torch.cuda.Stream()):
        net(x)
    return graph


def graphs(seconds: float) -> None:
    """Captures repeatedly, and replays each capture: an invalidated one ends the job."""
    torch = importlib.import_module("torch")
    net, x = encoder(torch)
    net.eval()
    with torch.no_grad():
        net(x)
    loop(torch, seconds, lambda: _captured(torch, net, x).replay())


def replay(seconds: float) -> None:
    """One captured graph, replayed."""
    torch = importlib.import_module("torch")
    net, x = encoder(torch)
    net.eval()
    with torch.no_grad():
        net(x)
    torch.cuda.synchronize()
    loop(torch, seconds, _captured(torch, net, x).replay)


def triton(seconds: float) -> None:
    """Launches of a compiled function beside a long kernel on another stream."""
    torch = importlib.import_module("torch")
    add = torch.compile(lambda x: x * 2 + 1)
    x, a = torch.ones(1 << 20, device="cuda"), torch.randn(8192, 8192, device="cuda")
    add(x)
    torch.cuda.synchronize()
    long, ends, worst = torch.cuda.Stream(), time.monotonic() + seconds, 0.0
    while time.monotonic() < ends:
        with torch.cuda.stream(long):
            for _ in range(20):
                torch.mm(a, a)
        for _ in range(8):
            begin = time.monotonic()
            add(x)
            worst = max(worst, time.monotonic() - begin)
        torch.cuda.synchronize()
    tell(longest_launch_s=round(worst, 3))
    sys.exit(worst > 1)


def allocate(how: str, seconds: float) -> None:
    """Allocate memory until it is refused; then free some, and allocate again."""
    how = {
        "native": "",
        "expandable": "expandable_segments:True",
        "async": "backend:cudaMallocAsync",
    }[how]
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = how
    torch = importlib.import_module("torch")
    torch.zeros(1, device="cuda")
    seen, kept, refused = torch.cuda.mem_get_info(), [], ""
    while not refused:
        try:
            kept.append(torch.empty(256 * MIB, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError as error:
            refused = str(error).splitlines()[0][:200]
    total = torch.cuda.get_device_properties(0).total_memory // MIB
    took_mib = 256 * len(kept)
    tell(free_total_mib=[n // MIB for n in seen], took_mib=took_mib, refused=refused, total=total)
    del kept[-4:]
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    kept.append(torch.empty(512 * MIB, dtype=torch.uint8, device="cuda"))
    time.sleep(seconds / 2)
    # Below half of the cap, something beside the context used memory; above it, the cap did not
    # hold.
    sys.exit(not (seen[1] // MIB) / 2 < took_mib <= seen[1] // MIB)


def jax(seconds: float) -> None:
    """JAX allocates three quarters of the reported memory."""
    del seconds
    found, numpy = importlib.import_module("jax"), importlib.import_module("jax.numpy")
    x = numpy.ones((8192, 8192), numpy.bfloat16)
    for _ in range(100):
        (x @ x).block_until_ready()
    limit = found.devices()[0].memory_stats()["bytes_limit"] // MIB
    tell(bytes_limit_mib=limit)


def cupy(seconds: float) -> None:
    """The memory that CuPy sees."""
    del seconds
    found = importlib.import_module("cupy")
    a = found.ones((4096, 4096))
    a @ a
    found.cuda.runtime.deviceSynchronize()
    tell(free_total_mib=[n // MIB for n in found.cuda.runtime.memGetInfo()])


JOBS = {
    "gemm": gemm, "ahead": ahead, "train": train, "graphs": graphs, "replay": replay,
    "triton": triton, "jax": jax, "cupy": cupy,
}  # fmt: skip

if __name__ == "__main__":
    job, length = sys.argv[1], float(sys.argv[2])
    if job.startswith("alloc-"):
        allocate(job.removeprefix("alloc-"), length)
    else:
        JOBS[job](length)
