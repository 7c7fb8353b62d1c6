"""`python -m tests.bench [PART ...]`: all figures, or those of the named parts.

The parts are shapes, quiet and memory; with a control plane, latency, admission and arrival; and,
with policies and flow schemas as installed, throughput, gang, reclaim, rest, pages and scale.
"""

import argparse
import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial

from tests.bench import (
    admission,
    arrival,
    gang,
    latency,
    memory,
    pages,
    quiet,
    reclaim,
    rest,
    scale,
    shapes,
    throughput,
)
from tests.bench.figures import Figure, show
from tests.bench.machine import beside_others
from tests.support.controlplane.cluster import ControlPlane
from tests.support.installation import install

SIZES = (200, 1000)
VICTIMS = (200, 1000)
#: Memory limit: the API server of the large cluster uses 2 GiB and allocates 150 MiB a second.
MEMORY_GIB = 12
#: A measurement on a control plane.
Live = Callable[[ControlPlane], Coroutine[None, None, list[Figure]]]
IN_MEMORY = {"shapes": shapes.measure, "quiet": quiet.measure, "memory": memory.measure}
ON_A_PLANE: dict[str, Sequence[Live]] = {
    "latency": [latency.measure],
    "admission": [admission.measure],
    "arrival": [arrival.measure],
}
#: Measurements with policies and flow schemas in force.
AS_INSTALLED: dict[str, Sequence[Live]] = {
    "throughput": [partial(throughput.measure, n_nodes=size) for size in SIZES],
    "gang": [gang.measure],
    "reclaim": [partial(reclaim.measure, n_victims=size) for size in VICTIMS],
    "rest": [rest.measure],
    "pages": [pages.measure],
    "scale": [scale.measure],
}


def main() -> None:
    """Measure and show; if a part fails, what was measured before it."""
    parts = _parts()
    figures: list[Figure] = []
    try:
        figures.extend(_measured(parts))
    finally:
        show(figures)


def _measured(parts: list[str]) -> Iterator[Figure]:
    for part, measure in IN_MEMORY.items():
        if part in parts:
            yield from beside_others(measure)
    if {*ON_A_PLANE, *AS_INSTALLED} & set(parts):
        yield from _measured_live(parts)


def _parts() -> list[str]:
    """The parts named on the command line, or all; ends the program for an unknown name."""
    known = [*IN_MEMORY, *ON_A_PLANE, *AS_INSTALLED]
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parts: list[str] = parser.parse_args().parts
    if unknown := [part for part in parts if part not in known]:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}")
    return parts or known


def _measured_live(parts: list[str]) -> Iterator[Figure]:
    """The figures that need a control plane."""
    with ControlPlane(memory_gib=MEMORY_GIB) as plane:
        install(plane)
        plane.mark_baseline()
        yield from _run(plane, ON_A_PLANE, parts)
        plane.reset()
        install(plane, "policies", "flow-control")
        plane.mark_baseline()
        yield from _run(plane, AS_INSTALLED, parts)


def _run(
    plane: ControlPlane, known: dict[str, Sequence[Live]], parts: list[str]
) -> Iterator[Figure]:
    for part, all_of in known.items():
        for measure in all_of if part in parts else ():
            yield from beside_others(_once(measure, plane))


def _once(measure: Live, plane: ControlPlane) -> Callable[[], list[Figure]]:
    return lambda: asyncio.run(measure(plane))


if __name__ == "__main__":
    main()
