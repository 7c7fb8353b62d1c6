"""The API server with one project that lists the test's namespace."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.integration.http.rig import World, world_of
from tests.support.auditor import Auditor
from tests.support.controlplane.handles import Api


@pytest_asyncio.fixture
async def world(api: Api) -> AsyncIterator[World]:
    async with world_of(api) as made:
        await made.add_project()
        yield made


@pytest.fixture(autouse=True)
def _under_audit(audited: Auditor) -> None:
    """Every test of this folder runs under the auditor."""
