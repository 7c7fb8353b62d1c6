"""An extender without an API server, for answers that need none."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.unit.http.rig import Running, running, unreachable_kubeconfig


@pytest_asyncio.fixture
async def extender(tmp_path: Path) -> AsyncIterator[Running]:
    """Synced and empty."""
    async with running(unreachable_kubeconfig(tmp_path)) as made:
        made.be_synced()
        yield made
