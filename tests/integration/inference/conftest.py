"""A cluster with an inference service of team-a and workloads of team-b."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.cycle.two_projects import Scene
from tests.integration.inference.deployments import opened_with_webhooks, started
from tests.support import lws
from tests.support.auditor import Auditor
from tests.support.controllers import SigsController
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
    async with started(Keda(scene.plane, tmp_path)) as made:
        yield made


@pytest.fixture
async def worker_sets(scene: Scene, tmp_path: Path) -> AsyncIterator[SigsController]:
    """LeaderWorkerSet's controller, for tests that are skipped without it."""
    async with started(SigsController(scene.plane, tmp_path, lws.parts())) as made:
        yield made
