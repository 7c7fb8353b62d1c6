"""Clients of the real API server, and short names for the tests' objects."""

from collections.abc import AsyncIterator

import pytest_asyncio

from extender.kube.client import Client
from tests.support.controlplane.handles import Api


@pytest_asyncio.fixture
async def client(api: Api) -> AsyncIterator[Client]:
    async with await api.client() as client:
        yield client
