"""The fixture `audited`, under which integration tests run.

`tests/conftest.py` loads it with `pytest_plugins = ["tests.support.auditor.fixtures"]`; a folder of
tests that bind pods requests it in an `autouse` fixture.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.auditor.auditor import Auditor
from tests.support.auditor.etcd import Store
from tests.support.controlplane.handles import Api
from tests.support.controlplane.ports import LOOPBACK


def store_of(api: Api) -> Store:
    """The etcd of the fixtures' API server."""
    return Store(f"http://{LOOPBACK}:{api.control_plane.ports.etcd_client}")


@pytest_asyncio.fixture
async def audited(api: Api, request: pytest.FixtureRequest) -> AsyncIterator[Auditor]:
    """An audit of the whole test; the test fails if the verdict is not clean.

    A test that binds nothing on purpose has the mark `@pytest.mark.binds_nothing`.
    """
    needs_binds = request.node.get_closest_marker("binds_nothing") is None
    async with Auditor(store_of(api), needs_binds=needs_binds) as auditor:
        yield auditor
        verdict = await auditor.finish()
    if not verdict.is_clean:
        pytest.fail(str(verdict), pytrace=False)


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line("markers", "binds_nothing: the audit of this test needs no bind")
