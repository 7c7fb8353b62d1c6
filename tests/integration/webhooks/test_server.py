"""The HTTPS server alone: its answers to valid, invalid and abusive requests."""

import asyncio
import contextlib
import gzip
import json
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from extender.api.events import Synced
from tests.support.admission import pod, review_body, usual_index
from webhooks import certs
from webhooks.body import LARGE_WITHIN_S, MAX_BODY, MAX_OBJECT, SMALL
from webhooks.catalog import WATCHED
from webhooks.projects import ProjectIndex
from webhooks.server import BODY_DEADLINE_S, Server

REVIEW = review_body(pod().noted({"gpu-fraction": "0.5"}).body)


class Clock:
    """A wall clock that a test can turn."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now


@dataclass(slots=True)
class Running:
    """A server on loopback, and a client that trusts its CA only."""

    url: str
    client: aiohttp.ClientSession
    clock: Clock
    projects: ProjectIndex

    async def post(self, body: bytes, **headers: str) -> tuple[int, str]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.client.post(f"{self.url}/mutate", data=body, headers=named) as answer:
            return answer.status, await answer.text()

    async def get(self, path: str) -> tuple[int, str]:
        async with self.client.get(f"{self.url}{path}") as answer:
            return answer.status, await answer.text()


@asynccontextmanager
async def serving(
    folder: Path, body_deadline_s: float = BODY_DEADLINE_S, large_within_s: float = LARGE_WITHIN_S
) -> AsyncIterator[Running]:
    """A server with these limits, until the block ends."""
    bundle = certs.load_or_make(folder)
    clock, projects = Clock(), usual_index()
    projects.is_synced = False
    server = Server(
        projects, now=clock, body_deadline_s=body_deadline_s, large_within_s=large_within_s
    )
    context = certs.server_context()
    certs.serve_with(context, folder)
    server.bundle = bundle
    runner = server.runner()
    await runner.setup()
    try:
        site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        port = runner.addresses[0][1]
        trust = ssl.create_default_context(cadata=bundle.ca.decode())
        connector = aiohttp.TCPConnector(ssl=trust)
        async with aiohttp.ClientSession(connector=connector) as client:
            yield Running(f"https://127.0.0.1:{port}", client, clock, projects)
    finally:
        await runner.cleanup()


@pytest_asyncio.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    async with serving(tmp_path) as server:
        yield server


@pytest_asyncio.fixture
async def impatient(tmp_path: Path) -> AsyncIterator[Running]:
    """A server that soon gives up a body that does not come."""
    async with serving(tmp_path, body_deadline_s=2.0, large_within_s=1.0) as server:
        yield server


async def test_review_is_answered_with_its_uid(running: Running) -> None:
    status, text = await running.post(REVIEW)
    response = json.loads(text)["response"]
    assert status == 200
    assert response["uid"] == json.loads(REVIEW)["request"]["uid"]
    assert response["allowed"]
    assert response["patchType"] == "JSONPatch"


async def test_ready_once_projects_are_known(running: Running) -> None:
    assert (await running.get("/readyz"))[0] == 503
    for kind in WATCHED:
        running.projects.deliver(Synced(kind))
    assert await running.get("/readyz") == (200, "ok\n")


@pytest.mark.parametrize("passed", [certs.LIFETIME + timedelta(seconds=1), -certs.CLOCK_SKEW * 2])
async def test_not_ready_while_the_certificate_is_not_in_force(
    running: Running, passed: timedelta
) -> None:
    for kind in WATCHED:
        running.projects.deliver(Synced(kind))
    running.clock.now += passed
    status, text = await running.get("/readyz")
    assert (status, text) == (503, "the serving certificate is not in force\n")
    assert (await running.get("/healthz"))[0] == 200


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000, b'{"request":{}}', b"\xff" * 10])
async def test_malformed_body_is_a_clear_400(running: Running, body: bytes) -> None:
    status, text = await running.post(body)
    assert status == 400
    assert "AdmissionReview" in text


async def test_body_above_the_bound_is_413_and_others_go_on(running: Running) -> None:
    for _ in range(5):
        # The server does not read the rest, and may hang up before the client has read the answer.
        with contextlib.suppress(aiohttp.ClientOSError):
            url, body = f"{running.url}/mutate", b" " * (MAX_BODY + 1)
            async with running.client.post(url, data=body) as refused:
                break
    assert refused.status == 413
    # Otherwise the next request may be sent on a connection that is about to be reset.
    assert refused.headers["Connection"] == "close"
    assert (await running.post(REVIEW))[0] == 200


async def test_body_at_the_bound_is_read(running: Running) -> None:
    status, text = await running.post(REVIEW + b" " * (MAX_OBJECT + SMALL - len(REVIEW)))
    assert status == 200
    assert json.loads(text)["response"]["patchType"] == "JSONPatch"


def large(size: int, namespace: str = "team-a", operation: str = "CREATE") -> bytes:
    """The review of a pod with a GPU, so many bytes long, without spaces as Go writes it."""
    built = pod(namespace=namespace).asking("nvidia.com/gpu", "1").noted({"x": "|"})
    body = json.dumps(
        json.loads(review_body(built.body, namespace, operation)), separators=(",", ":")
    ).encode()
    return body.replace(b"|", b"x" * (size - len(body) + 1))


@pytest.mark.parametrize("size", [MAX_OBJECT + 2 * SMALL, 7 * 2**20, MAX_BODY])
async def test_pod_of_a_project_that_is_too_large_is_refused_in_words(
    running: Running, size: int
) -> None:
    status, text = await running.post(large(size))
    response = json.loads(text)["response"]
    assert (status, response["allowed"]) == (200, False)
    assert "keep data in a ConfigMap" in response["status"]["message"]
    assert response["uid"] == json.loads(REVIEW)["request"]["uid"]


async def test_pod_outside_projects_may_be_as_large_as_the_cluster_allows(
    running: Running,
) -> None:
    _, text = await running.post(large(7 * 2**20, "elsewhere"))
    assert json.loads(text)["response"]["allowed"]


async def test_update_may_have_two_objects_of_that_size(running: Running) -> None:
    status, _ = await running.post(large(2 * MAX_OBJECT, operation="UPDATE"))
    assert status == 200


async def test_large_body_that_comes_too_slowly_is_answered_by_its_head(impatient: Running) -> None:
    async def never_ending() -> AsyncIterator[bytes]:
        yield large(2 * SMALL)[: SMALL + 1]
        await asyncio.Event().wait()

    async with impatient.client.post(f"{impatient.url}/mutate", data=never_ending()) as answer:
        response = json.loads(await answer.text())["response"]
    assert not response["allowed"]
    assert "too many large objects" in response["status"]["message"]


async def test_small_reviews_pass_large_ones_by(running: Running) -> None:
    """A namespace with a large body that never ends has its turn; others are answered meanwhile."""
    started, ended = asyncio.Event(), asyncio.Event()

    async def unending() -> AsyncIterator[bytes]:
        yield large(2 * SMALL)[: SMALL + 1]
        started.set()
        await ended.wait()

    async def send() -> int:
        async with running.client.post(f"{running.url}/mutate", data=unending()) as answer:
            return answer.status

    slow = asyncio.create_task(send())
    await started.wait()
    assert (await running.post(REVIEW))[0] == 200
    _, text = await running.post(large(2 * SMALL, "elsewhere"))
    assert json.loads(text)["response"]["allowed"]
    ended.set()
    assert await slow in (200, 400)


async def test_compressed_body_is_refused_unread(running: Running) -> None:
    bomb = gzip.compress(b"0" * (64 * 2**20))
    status, text = await running.post(bomb, Content_Encoding="gzip")
    assert status == 415
    assert "without Content-Encoding" in text


async def test_slow_body_is_given_up(impatient: Running) -> None:
    async def never_ending() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    async with impatient.client.post(f"{impatient.url}/mutate", data=never_ending()) as answer:
        assert answer.status == 408


async def test_other_methods_and_paths_are_not_served(running: Running) -> None:
    assert (await running.get("/mutate"))[0] == 405
    assert (await running.get("/debug"))[0] == 404


async def test_decisions_are_counted(running: Running) -> None:
    await running.post(REVIEW)
    await running.post(review_body(pod().noted({"gpu-fraction": "x"}).body))
    await running.post(b"{")
    _, text = await running.get("/metrics")
    for decision in ("patched", "refused", "malformed"):
        assert f'ballast_webhook_reviews_total{{decision="{decision}"}} 1.0' in text


async def test_end_of_the_certificate_is_told(running: Running) -> None:
    _, text = await running.get("/metrics")
    (told,) = re.findall(r"^ballast_webhook_certificate_expires_\w+ (\S+)$", text, re.M)
    assert abs(float(told) - (running.clock.now + certs.LIFETIME).timestamp()) < 60


async def test_client_that_does_not_know_the_ca_is_not_fooled(running: Running) -> None:
    async with aiohttp.ClientSession() as stranger:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await stranger.get(f"{running.url}/healthz")
