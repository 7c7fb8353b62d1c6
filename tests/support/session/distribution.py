"""Which tests stay together when pytest-xdist runs several workers, and which come first.

Every worker has a control plane of its own (other ports, other files), so tests of different
workers share nothing but the processor. What must stay on one worker is what shares a fixture: a
folder with one stage for all its tests, or a module whose fixture starts programs. Everything
else is handed out test by test. Long work comes first, so that no worker ends long before another.
"""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

#: Folders in which all tests share one stage, in the order in which they start.
WHOLE = ("tests/e2e/", "tests/attacks/")
#: Folders in which the tests of a module share programs.
BY_MODULE = ("tests/integration/",)
FIRST = (*WHOLE, *BY_MODULE)


def unit_of(nodeid: str) -> str:
    """The tests with which this one stays on a worker, as a prefix of their node ids."""
    for folder in WHOLE:
        if nodeid.startswith(folder):
            return folder
    if nodeid.startswith(BY_MODULE):
        return nodeid.split("::", 1)[0]
    return nodeid


def rank_of(nodeid: str) -> int:
    """The place of a test's folder in a distributed run; tests of equal rank keep their order."""
    ranks = (ix for ix, folder in enumerate(FIRST) if nodeid.startswith(folder))
    return next(ranks, len(FIRST))


def scheduler(config: pytest.Config, log: "Producer") -> "LoadScopeScheduling":
    """Hands out units of `unit_of` in the order in which the workers collected them."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415  # only several workers need it

    class ByUnit(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

    config.option.loadscopereorder = False
    return ByUnit(config, log)
