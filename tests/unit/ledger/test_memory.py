"""What the ledger's writer remembers of nodes that it has written."""

from typing import Any
from unittest.mock import create_autospec

import pytest
from msgspec import convert
from msgspec.structs import replace

from extender.api.kinds import GpuNode, GpuNodeSpec
from extender.kube.client import Client
from extender.kube.resources import Resource
from extender.ledger import writer
from extender.ledger.writer import Ledger
from tests.support.builders import gpu_node, pod, row, whole


async def test_nodes_that_are_deleted_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """An autoscaler makes nodes of new names for ever."""
    monkeypatch.setattr(writer, "_TIDY_FROM", 8)
    known: dict[str, GpuNode] = {}
    client = create_autospec(Client, instance=True)

    async def patch(_of: Resource[GpuNode], name: str, body: dict[str, Any]) -> GpuNode:
        version = int(known[name].metadata.resource_version) + 1
        meta = replace(known[name].metadata, resource_version=str(version))
        return replace(known[name], metadata=meta, spec=convert(body["spec"], GpuNodeSpec))

    client.merge_patch.side_effect = patch
    ledger = Ledger(client, known.get)
    held = row(pod("a").build(), whole(0))
    for number in range(100):
        name = f"n{number}"
        known[name] = gpu_node(name, 1).version(1).build()
        written = await ledger.change(name, lambda _: [held])
        assert isinstance(written, GpuNode)
        del known[name]
    assert len(ledger._seen) <= 8
