"""A cluster on which an inference service of team-a and work of team-b meet."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.cycle.two_projects import Scene
from tests.integration.inference.deployments import opened_with_webhooks
from tests.support.auditor import Auditor
from tests.support.controlplane.handles import Cluster


@pytest.fixture
async def scene(cluster: Cluster, audited: Auditor, tmp_path: Path) -> AsyncIterator[Scene]:
    """Two nodes of two cards, and the webhooks for pods. Ends at rest."""
    async with opened_with_webhooks(cluster, 2, tmp_path) as opened:
        yield opened
        await audited.finish()
