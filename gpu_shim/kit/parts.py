"""The parts of the kit: steps, ordered so that a failure makes later steps pointless."""

from dataclasses import dataclass
from typing import Final

#: Time limit of a part in seconds, including start and end.
LONGEST_S: Final = 540.0
#: Time until a job is ready: a first import of PyTorch takes about 10 s, a compilation as long
#: again.
START_S: Final = 30


@dataclass(slots=True, frozen=True)
class Step:
    """One program with its time limit, and the expected result."""

    name: str
    #: A module of this package and its arguments.
    command: tuple[str, ...]
    budget_s: float
    expected: str


def _row(row: int, seconds: float, budget_s: float, expected: str) -> Step:
    return Step(f"row {row}", ("rows", str(row), str(seconds)), budget_s, expected)


def _contained(name: str, seconds: float, expected: str, *containers: str) -> Step:
    return Step(name, ("contained", str(seconds), *containers), seconds + START_S + 10, expected)


PARTS: Final = {
    "a": (
        Step("machine", ("checks", "machine"), 20, "a GPU in compute mode Default, MIG off"),
        Step("names", ("checks", "names"), 20, "no function of the driver is missing in ours"),
        Step("look-up", ("checks", "lookup"), 30, "cuGetProcAddress gives what dlsym gives"),
        Step("contexts", ("checks", "contexts"), 30,
             "what a context takes; an event of one can be queried while another is current"),
        Step("nvidia-smi", ("checks", "smi"), 40, "its table, with a total of 16384 MiB"),
        _contained("torch native", 15, "OutOfMemoryError at the cap", "a=1/2:1:16384:alloc-native"),
        _contained("torch expandable", 15, "the same", "a=1/2:1:16384:alloc-expandable"),
        _contained("torch async", 15, "the same", "a=1/8:1:4096:alloc-async"),
        _row(7, 5, 60, "each way 16384 MiB less one context, then out of memory"),
        _row(12, 5, 30, "at most 1 % of a processor"),
    ),
    "b": (
        _row(1, 8, 200, "50 ns for a launch; 0.5 % for kernels and graphs"),
        _row(2, 30, 200, "25 and 75 within 1.8 points, 10 in a plan; overlap 1 %, together 98 %"),
        _row(10, 10, 60, "p50 at most 500 us, 0.2 % of a lease; 100 to 400 expected"),
    ),
    "c": (
        _contained("gemm, a quarter", 36, "25 and 75 within 2 points",
                   "a=1/4:1/4:30000:gemm", "b=3/4:3/4:30000:gemm"),
        _contained("queued ahead", 36, "25 and 75 within 2 points",
                   "a=1/4:1/4:30000:ahead", "b=3/4:3/4:30000:gemm"),
        _contained("captures beside training", 30, "no failed capture, 50 and 50",
                   "a=1/2:1/2:30000:graphs", "b=1/2:1/2:30000:train"),
        _contained("one container, two programs", 30, "50 and 50",
                   "a=1/2:1/2:30000:gemm", "a=1/2:1/2:30000:gemm", "b=1/2:1/2:30000:replay"),
        _contained("triton", 20, "every launch returns within 1 s",
                   "a=1/2:1:30000:triton", "b=1/2:1:30000:gemm"),
        _contained("cupy and jax", 30, "each within its cap",
                   "a=1/4:1:20000:jax", "b=1/4:1:8000:cupy"),
    ),
    "d": (
        _row(5, 12, 150, "50 within a point and one lease, or one kernel of 1 s"),
        _row(6, 12, 150, "p99 at 250 ms at most about 1 s, at 50 ms 0.2 s, at 20 ms 0.1 s"),
        _row(3, 15, 110, "97 % of what is due, less a lease; 25 % alone under Strict"),
        _row(8, 15, 110, "97 %, less a lease; at most 1.25 s with nothing on the card"),
    ),
}  # fmt: skip
