"""`ballast view` answers API servers after the CA of their certificates has changed."""

import asyncio
import json
from pathlib import Path

from extender.kube.client import Client
from extender.view.front_proxy import follow_ca
from tests.integration.kube.fakeapi import Answer, FakeApi


def config_map(ca: str) -> Answer:
    data = {"requestheader-client-ca-file": ca, "requestheader-allowed-names": json.dumps(["a"])}
    return 200, {"data": data}


async def test_a_ca_that_is_rotated_is_followed(tmp_path: Path) -> None:
    file = tmp_path / "front-proxy.crt"
    file.write_text("old")
    refused: Answer = (403, {"kind": "Status", "code": 403, "message": "not now"})
    async with FakeApi(lists=[config_map("old"), refused, config_map("old, new")]) as api:
        client = await Client.connect(api.kubeconfig(tmp_path))
        async with client, asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            following = tasks.create_task(follow_ca(client, file, poll_s=0.01))
            while file.read_text() != "old, new":
                await asyncio.sleep(0.01)
            following.cancel()
    assert api.n_seen("list") >= 3
