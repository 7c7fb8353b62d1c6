"""Which tests stay together when pytest-xdist runs several workers, and in which order they start.

Every worker has a control plane of its own (other ports, other files), so tests of different
workers share nothing but the processor. What must stay on one worker is what shares a fixture: a
folder with one stage for all its tests, or a module whose fixture starts programs. Everything
else is handed out test by test.

Long units come first, so that no worker ends long before another. Tests with a control plane wait
more than they compute, others only compute: evenly mixed, they keep the processor busy from the
start to the end. Short tests come last, for they end at nearly the same time on all workers.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

#: Folders and modules in which all tests share one stage, or what they computed, in the order in
#: which they start.
WHOLE = ("tests/faults/", "tests/e2e/", "tests/attacks/", "tests/scenarios/test_unrelated.py")
#: Folders in which the tests of a module share programs.
BY_MODULE = ("tests/integration/",)
#: Folders of short tests.
LAST = ("tests/unit/",)


def unit_of(nodeid: str) -> str:
    """The tests with which this one stays on a worker, as a prefix of their node ids."""
    for folder in WHOLE:
        if nodeid.startswith(folder):
            return folder
    if nodeid.startswith(BY_MODULE):
        return nodeid.split("::", 1)[0]
    return nodeid


def places(nodeids: Sequence[str]) -> dict[str, tuple[int, float]]:
    """The place of each test in a distributed run; tests of equal places keep their order.

    Between the first units and the last tests, each series of alike units (the modules of a folder,
    the cases of a test) takes up the whole run.
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
    """What the test's unit is one of: the cases of a test function, else the units of a folder."""
    function, bracket, _ = unit_of(nodeid).partition("[")
    return function if bracket else function.split("::")[0].rpartition("/")[0]


def scheduler(config: pytest.Config, log: "Producer") -> "LoadScopeScheduling":
    """Hands out units of `unit_of` in the order in which the workers collected them."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415  # only several workers need it

    class ByUnit(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

    config.option.loadscopereorder = False
    return ByUnit(config, log)
