"""The webhook server with owners: what a review answers, and how long it waits for owners."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from copy import deepcopy
from typing import Any, Protocol

import aiohttp
import jsonpatch
import pytest_asyncio

from extender.api import names
from extender.api.objects import ObjectMeta
from tests.support.admission import review_body, usual_index
from tests.support.owners import Document, Shelf, child, unread
from webhooks.native_groups import NativeGroup
from webhooks.owners.batch import COMPLETION_INDEX
from webhooks.owners.origin import Owner
from webhooks.owners.reader import OwnerReader
from webhooks.owners.trace import Asked, Read
from webhooks.server import Server


class Ask(Protocol):
    """Has a pod reviewed by a server with these owners."""

    async def __call__(self, read: Read, pod: Document = ...) -> str: ...


def train() -> Document:
    job = unread("batch/v1", "Job", "train")
    gpu = {"containers": [{"name": "m", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}
    job["spec"] = {
        "completionMode": "Indexed",
        "completions": 4,
        "parallelism": 4,
        "template": {"spec": gpu},
    }
    return job


POD = child(train(), {COMPLETION_INDEX: "0"}).body
#: All reads of a review.
WITHIN_S = 3.0


@pytest_asyncio.fixture
async def ask() -> AsyncIterator[Ask]:
    """Posts the creation of a pod of `train`, and gives the patch that comes back."""
    server = Server(usual_index(), reads_within_s=WITHIN_S)
    runner = server.runner()
    await runner.setup()
    await aiohttp.web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/mutate"
    async with aiohttp.ClientSession() as client:

        async def post(read: Read, pod: Document = POD) -> str:
            server.read_owner = read
            async with client.post(url, data=review_body(pod)) as answer:
                response: dict[str, Any] = (await answer.json())["response"]
            assert response["allowed"]
            return base64.b64decode(response["patch"]).decode()

        yield post
    await runner.cleanup()


async def test_gang_of_the_owner_is_in_the_patch(ask: Ask) -> None:
    patch = await ask(OwnerReader(Shelf(train()).get).read)
    after = jsonpatch.apply_patch(POD, json.loads(patch))["metadata"]
    assert after["labels"][names.LABEL_POD_GROUP] == "job-train"
    assert after["annotations"][names.ANNOTATION_MIN_MEMBER] == "4"


async def test_pod_gets_its_gate_though_its_owner_is_never_read(ask: Ask) -> None:
    async def silent(_asked: object) -> None:
        await asyncio.Event().wait()

    patch = await ask(silent)
    assert names.GATE in patch
    assert "job-train" in patch
    assert names.ANNOTATION_MIN_MEMBER not in patch


async def test_group_and_owner_are_read_within_one_deadline(ask: Ask) -> None:
    clock = asyncio.get_running_loop().time
    started, asked_for_owner, given_up = clock(), 0.0, 0.0

    async def slow(asked: Asked) -> Owner | None:
        nonlocal asked_for_owner, given_up
        if asked.kind.kind == "PodGroup":
            await asyncio.sleep(0.5 * WITHIN_S)
            return NativeGroup(metadata=ObjectMeta(name=asked.name))
        asked_for_owner = clock()
        try:
            await asyncio.Event().wait()
        finally:
            given_up = clock()
        return None

    pod = deepcopy(POD)
    pod["spec"]["schedulingGroup"] = {"podGroupName": "train"}
    assert names.GATE in await ask(slow, pod)
    assert started + WITHIN_S <= given_up
    # A deadline of its own would end no earlier than this, on a busy machine too.
    assert given_up < asked_for_owner + WITHIN_S
