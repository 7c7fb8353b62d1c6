"""Which tests stay together when pytest-xdist runs several workers, and in which order they start.

Every worker has its own control plane (ports and files), so tests of different workers share only
the CPU. Tests that share a fixture stay on one worker: those of a folder with one stage, or of a
module whose fixture starts programs or reads all cases. All other tests are distributed one by one.

Long units come first, so that no worker ends long before another. Tests with a control plane mostly
wait and others compute, so both kinds are mixed evenly, which keeps the CPU busy. Short tests come
last, since they end at nearly the same time on all workers.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

#: Folders in which all tests share one stage, in the order of their start.
WHOLE = ("tests/faults/", "tests/e2e/", "tests/attacks/")
#: Where the tests of a module share programs, or the cases that a process reads in five seconds.
BY_MODULE = ("tests/integration/", "tests/scenarios/test_unrelated.py")
#: Folders of short tests.
LAST = ("tests/unit/",)


def unit_of(nodeid: str) -> str:
    """The unit of a test: the common prefix of the node ids that stay on its worker."""
    for folder in WHOLE:
        if nodeid.startswith(folder):
            return folder
    if nodeid.startswith(BY_MODULE):
        return nodeid.split("::", 1)[0]
    return nodeid


def places(nodeids: Sequence[str]) -> dict[str, tuple[int, float]]:
    """The position of each test in a distributed run; tests with equal positions keep their order.

    Between the first units and the last tests, each series (the modules of a folder, the cases of a
    test) is spread evenly over the run.
    """
    all_series: dict[str, dict[str, int]] = {}
    for nodeid in nodeids:
        series = all_series.setdefault(_series_of(nodeid), {})
        series.setdefault(unit_of(nodeid), len(series))

    def place_of(nodeid: str) -> tuple[int, float]:
        if nodeid.startswith(WHOLE):
            return WHOLE.index(unit_of(nodeid)), 0
        if nodeid.startswith(LAST):
            return len(WHOLE) + 1, 0
        series = all_series[_series_of(nodeid)]
        return len(WHOLE), series[unit_of(nodeid)] / len(series)

    return {nodeid: place_of(nodeid) for nodeid in nodeids}


def _series_of(nodeid: str) -> str:
    """The series of the test's unit: the cases of a test function, else the units of a folder."""
    function, bracket, _ = unit_of(nodeid).partition("[")
    return function if bracket else function.split("::")[0].rpartition("/")[0]


def scheduler(config: pytest.Config, log: "Producer") -> "LoadScopeScheduling":
    """Distributes units (`unit_of`) in the order in which the workers collected them."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415  # only several workers need it

    class ByUnit(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

    config.option.loadscopereorder = False
    return ByUnit(config, log)
