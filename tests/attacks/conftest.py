"""Fixtures: the stage of all attempts, and their counts."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.attacks.attempt import Tally
from tests.attacks.stage import Stage, opened
from tests.conftest import SCHEDULER, fresh_namespace
from tests.support.auditor.auditor import Auditor
from tests.support.auditor.etcd import Store
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import Cluster
from tests.support.controlplane.ports import LOOPBACK
from tests.support.session.closing import add_line


def _order(entry: tuple[str, int]) -> tuple[str, int]:
    return entry[0][0] + entry[0][-1:].strip("0123456789"), int(entry[0][1:].rstrip("+"))


@pytest.fixture(scope="session")
def tally(request: pytest.FixtureRequest) -> Iterator[Tally]:
    """The counts of the session, shown below the results: all attempts, and those that
    succeeded."""
    tally = Tally()
    yield tally
    add_line(request.config, str(tally))
    by_threat = ", ".join(f"{threat} {n}" for threat, n in sorted(tally.tried.items(), key=_order))
    add_line(request.config, f"  {by_threat}")
    for line in tally.succeeded:
        add_line(request.config, f"  SUCCEEDED: {line[:400]}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(control_plane: ControlPlane) -> AsyncIterator[Stage]:
    """The running system, under the auditor; the module's last test checks its verdict."""
    cluster = Cluster(control_plane, fresh_namespace(control_plane), SCHEDULER)
    with opened(cluster) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def auditor(control_plane: ControlPlane, stage: Stage) -> AsyncIterator[Auditor]:
    """Judges all revisions from the start of the stage."""
    store = Store(f"http://{LOOPBACK}:{control_plane.ports.etcd_client}")
    async with Auditor(store) as running:
        yield running
