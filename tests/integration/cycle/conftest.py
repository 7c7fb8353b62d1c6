"""The scene of most of these tests."""

from collections.abc import AsyncIterator

import pytest

from tests.integration.cycle.two_projects import Scene
from tests.support.auditor import Auditor
from tests.support.controlplane.handles import Cluster


@pytest.fixture
async def scene(cluster: Cluster, audited: Auditor) -> AsyncIterator[Scene]:
    """Two nodes of two cards; team-a and team-b may have two each. Ends at rest."""
    async with Scene.open(cluster, n_nodes=2, cards=2) as opened:
        yield opened
        await audited.finish()
