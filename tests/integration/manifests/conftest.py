"""CRDs of other projects that our manifests use, and a scene to which a repository is applied."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.cycle.two_projects import Scene
from tests.integration.inference.deployments import opened_with_webhooks
from tests.integration.manifests.repository import CARDS
from tests.support.controlplane.handles import Cluster

HERE = Path(__file__).parent


@pytest.fixture
def foreign_kinds() -> Path:
    """A folder of definitions: cert-manager's and the Prometheus operator's."""
    return HERE / "kinds"


@pytest.fixture
async def scene(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Scene]:
    """Ballast with its webhooks and a node for what `repository` has."""
    async with opened_with_webhooks(cluster, CARDS, tmp_path) as opened:
        yield opened
