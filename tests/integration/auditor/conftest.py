"""A writer, and an audit of its writes that is expected to fail, so it is not `audited`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.integration.auditor.writer import Writer
from tests.support.auditor import Auditor
from tests.support.auditor.fixtures import store_of
from tests.support.controlplane.handles import Api


@pytest_asyncio.fixture
async def writer(api: Api, tmp_path: Path) -> AsyncIterator[Writer]:
    """A writer with a node n1 to write on."""
    async with Writer(api.kubeconfig, api.namespace, tmp_path) as writer:
        await writer.add_node("n1")
        yield writer


@pytest_asyncio.fixture
async def auditor(api: Api, writer: Writer) -> AsyncIterator[Auditor]:
    """An audit that begins after the node is there."""
    async with Auditor(store_of(api)) as auditor:
        yield auditor
