"""A cluster on which an inference service of team-a and work of team-b meet."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.cycle.two_projects import Scene
from tests.integration.inference.deployments import opened_with_webhooks
from tests.support.auditor import Auditor
from tests.support.controlplane.handles import Cluster
from tests.support.keda.running import Keda


@pytest.fixture
async def scene(cluster: Cluster, audited: Auditor, tmp_path: Path) -> AsyncIterator[Scene]:
    """Two nodes of two cards, and the webhooks for pods. Ends at rest."""
    async with opened_with_webhooks(cluster, 2, tmp_path) as opened:
        yield opened
        await audited.finish()


@pytest.fixture
async def operator(scene: Scene, tmp_path: Path) -> AsyncIterator[Keda]:
    """KEDA, for tests that are skipped without it."""
    made = Keda(scene.plane, tmp_path)
    await asyncio.to_thread(made.install)
    try:
        await asyncio.to_thread(made.start)
        yield made
    finally:
        await asyncio.to_thread(made.stop)
