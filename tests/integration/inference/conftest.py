"""A cluster on which an inference service of team-a and work of team-b meet."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.cycle.two_projects import Scene
from tests.integration.inference.deployments import is_changed
from tests.integration.webhooks.conftest import CONFIGURATIONS
from tests.support.auditor import Auditor
from tests.support.controlplane.handles import Cluster
from tests.support.controlplane.ports import LOOPBACK
from tests.support.webhook_config import webhook_configurations


@pytest.fixture
async def scene(cluster: Cluster, audited: Auditor, tmp_path: Path) -> AsyncIterator[Scene]:
    """Two nodes of two cards, and the webhooks for pods. Ends at rest."""
    async with Scene.open(cluster, n_nodes=2, cards=2) as opened:
        webhooks = opened.installation.webhooks(tmp_path)
        await asyncio.to_thread(webhooks.start)
        url = f"https://{LOOPBACK}:{webhooks.port}"
        try:
            for document in webhook_configurations(url, (tmp_path / "ca.crt").read_bytes()):
                opened.admin.post(CONFIGURATIONS, document)
            await opened.until(lambda: is_changed(opened), "a pod that was changed")
            yield opened
            await audited.finish()
        finally:
            opened.cluster.kubectl("delete", "mutatingwebhookconfiguration", "ballast-webhooks")
            webhooks.kill()
