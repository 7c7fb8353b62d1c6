"""`python -m tests.bench [PART ...]`: all figures, or those of the parts named.

The parts are shapes, quiet and memory; and, with a control plane, latency and admission, and, with
policies and flow schemas as installed, throughput, gang, reclaim, rest and pages.
"""

import asyncio
import sys

from tests.bench import (
    admission,
    gang,
    latency,
    memory,
    pages,
    quiet,
    reclaim,
    rest,
    shapes,
    throughput,
)
from tests.bench.figures import Figure, show
from tests.support.controlplane.cluster import ControlPlane
from tests.support.installation import install

SIZES = (200, 1000)
VICTIMS = (200, 1000)
LIVE = ("latency", "admission", "throughput", "gang", "reclaim", "rest", "pages")


def main() -> None:
    """Measure and show."""
    parts = sys.argv[1:] or ["shapes", "quiet", "memory", *LIVE]
    figures: list[Figure] = shapes.measure() if "shapes" in parts else []
    figures += quiet.measure() if "quiet" in parts else []
    figures += memory.measure() if "memory" in parts else []
    if set(LIVE) & set(parts):
        figures += _measure_live(parts)
    show(figures)


def _measure_live(parts: list[str]) -> list[Figure]:
    """The figures that need the real control plane."""
    figures: list[Figure] = []
    with ControlPlane() as plane:
        install(plane)
        plane.mark_baseline()
        if "latency" in parts:
            figures += asyncio.run(latency.measure(plane))
        if "admission" in parts:
            figures += asyncio.run(admission.measure(plane))
        plane.reset()
        install(plane, "policies", "flow-control")
        plane.mark_baseline()
        if "throughput" in parts:
            for n_nodes in SIZES:
                figures += asyncio.run(throughput.measure(plane, n_nodes))
        if "gang" in parts:
            figures += asyncio.run(gang.measure(plane))
        if "reclaim" in parts:
            for n_victims in VICTIMS:
                figures += asyncio.run(reclaim.measure(plane, n_victims))
        if "rest" in parts:
            figures += asyncio.run(rest.measure(plane))
        if "pages" in parts:
            plane.reset()
            figures += asyncio.run(pages.measure(plane))
    return figures


if __name__ == "__main__":
    main()
