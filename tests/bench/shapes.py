"""Time of one cycle for the shared shapes of work, each in its own process, and its growth.

`bench/shapes.py` of the shared material makes the inputs; without it, the part is skipped with a
message. References are our own bars. The gang with a topology is ours.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.bench.figures import Figure

ROOT: Final = Path(__file__).parents[2]
SHAPES: Final = (
    Path(os.environ.get("BALLAST_SHARED", ROOT.parent / "shared")) / "bench" / "shapes.py"
)
N_RUNS: Final = 5
TIMEOUT_S: Final = 300
GROWTH: Final = (1, 2, 4)


@dataclass(slots=True, frozen=True)
class Shape:
    """Arguments of the shape, and the bar in milliseconds."""

    arguments: tuple[str, ...]
    bar_ms: float

    @property
    def name(self) -> str:
        """The name in the table."""
        return " ".join(word.lstrip("-") for word in self.arguments)


#: Shapes and bars, from the project's goals.
BARS: Final = (
    Shape(("reclaim-many", "--nodes", "500"), 1000),
    Shape(("reclaim-many", "--nodes", "500", "--queues", "20"), 1000),
    Shape(("reclaim-many", "--nodes", "5000", "--jobs", "10000", "--queues", "20"), 5000),
    *(
        Shape(("gang-impossible", "--nodes", str(n)), bar_ms)
        for n, bar_ms in ((10, 5), (50, 25), (100, 50), (1000, 500))
    ),
    *(
        Shape(("reclaim-gang", "--nodes", str(n)), bar_ms)
        for n, bar_ms in ((500, 200), (1000, 500))
    ),
    *(
        Shape(("full-node", "--nodes", str(n)), bar_ms)
        for n, bar_ms in ((16, 5), (64, 10), (128, 20))
    ),
    *(
        Shape(("consolidate", "--nodes", "50", "--jobs", str(n)), bar_ms)
        for n, bar_ms in ((10, 50), (25, 100))
    ),
    Shape(("pending", "--nodes", "100"), 20),
    Shape(("mixed", "--nodes", "100"), 20),
)
#: Shapes whose growth is fitted, with the smallest number of nodes.
GROWING: Final = (
    ("reclaim-many", 125),
    ("gang-impossible", 100),
    ("reclaim-gang", 250),
    ("full-node", 64),
    ("consolidate", 50),
    ("pending", 100),
    ("mixed", 100),
)
#: Pods of the gang with a topology, for its growth.
GANG: Final = 512


def measure() -> list[Figure]:
    """Median times of one cycle with their bars, the largest process, and exponents of growth."""
    if not SHAPES.exists():
        print(f"shapes: {SHAPES} is missing; set BALLAST_SHARED to its folder", file=sys.stderr)
        return []
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "shape.json"
        largest_mib = 0.0
        for shape in BARS:
            _write(file, *shape.arguments)
            timing = _time(file)
            largest_mib = max(largest_mib, timing["peak_rss_mib"])
            figures.append(Figure(shape.name, _rounded(timing["median_ms"]), "ms", shape.bar_ms))
        file.write_text(json.dumps(_near_gang(GANG)))
        name = f"gang of {GANG} pods on {GANG} nodes with a topology level"
        figures.append(Figure(name, _rounded(_time(file)["median_ms"]), "ms", 300))
        figures.append(Figure("largest of these processes", round(largest_mib), "MiB", 1024))
        for name, n_nodes in GROWING:
            took_ms = []
            for factor in GROWTH:
                _write(file, name, "--nodes", str(n_nodes * factor))
                took_ms.append(_time(file)["median_ms"])
            figures.append(growth(name, took_ms))
        took_ms = []
        for factor in GROWTH:
            file.write_text(json.dumps(_near_gang(GANG * factor // GROWTH[-1])))
            took_ms.append(_time(file)["median_ms"])
        figures.append(growth("gang with a topology level", took_ms))
    return figures


def growth(name: str, took_ms: list[float]) -> Figure:
    """The exponent of growth over the sizes `GROWTH`: the slope of the logarithms."""
    xs, ys = [math.log(factor) for factor in GROWTH], [math.log(each) for each in took_ms]
    power = round(statistics.linear_regression(xs, ys).slope, 2)
    return Figure(f"{name} grows with nodes to the power of", power, "")


def _write(file: Path, *arguments: str) -> None:
    with file.open("w") as out:
        command = [sys.executable, str(SHAPES), *arguments]
        subprocess.run(command, stdout=out, check=True, timeout=TIMEOUT_S)


def _time(file: Path) -> dict[str, Any]:
    """The timing of the one case in the file."""
    command = [sys.executable, "-m", "extender", "bench", "cycle", "-o", "json"]
    command += ["--shape", str(file), "--repeat", str(N_RUNS)]
    done = subprocess.run(command, capture_output=True, check=True, timeout=TIMEOUT_S, cwd=ROOT)
    timing: dict[str, Any] = json.loads(done.stdout)[0]
    return timing


def _rounded(milliseconds: float) -> float:
    return float(f"{milliseconds:.3g}")


def _near_gang(n_pods: int) -> dict[str, Any]:
    """A gang of whole nodes that must run in one of two zones, the second of which is half full."""
    nodes = [
        {"name": f"n{i}", "gpus": 8, "labels": {"zone": f"z{i // n_pods}", "rack": f"r{i // 16}"}}
        for i in range(n_pods + n_pods // 2)
    ]
    near = {"name": "site", "required": "zone", "preferred": "rack"}
    return {
        "scenario": "v1",
        "id": f"bench/near-gang-{n_pods}",
        "topologies": [{"name": "site", "levels": [{"label": "zone"}, {"label": "rack"}]}],
        "nodes": nodes,
        "queues": [{"name": "q", "gpu": {"quota": 8 * n_pods}}],
        "jobs": [
            {
                "name": "gang",
                "queue": "q",
                "group": {"min": n_pods, "topology": near},
                "tasks": [{"name": "t", "n": n_pods, "gpu": 8}],
            }
        ],
    }
