"""The stage of all attempts, and the count of them."""

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
    """The one count of the session, shown below the results: how many, and which succeeded."""
    tally = Tally()
    yield tally
    add_line(request.config, str(tally))
    by_threat = ", ".join(f"{threat} {n}" for threat, n in sorted(tally.tried.items(), key=_order))
    add_line(request.config, f"  {by_threat}")
    for line in tally.succeeded:
        add_line(request.config, f"  SUCCEEDED: {line[:400]}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(control_plane: ControlPlane) -> AsyncIterator[Stage]:
    """Everything running, under the auditor; the last test of the module asks for its verdict."""
    cluster = Cluster(control_plane, fresh_namespace(control_plane), SCHEDULER)
    with opened(cluster) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def auditor(control_plane: ControlPlane, stage: Stage) -> AsyncIterator[Auditor]:
    """Judges every revision from the moment the stage is set."""
    store = Store(f"http://{LOOPBACK}:{control_plane.ports.etcd_client}")
    async with Auditor(store) as running:
        yield running
