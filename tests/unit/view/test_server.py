"""The server of `ballast view`: which requests wait, and what is not computed."""

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from aiohttp.test_utils import TestClient, TestServer

from extender.state.model import WorkloadView
from extender.state.workloads.imagined import Wanted
from extender.view.answers import AsOf, Forecast
from extender.view.picture import Picture, imagined
from extender.view.server import Questions
from tests.support.snapshots import Cluster

ROOT = "/apis/view.ballast.dev/v1alpha1"
NOW = AsOf("2026-01-01T00:00:00Z", "2")
BEFORE = AsOf("2026-01-01T00:00:00Z", "1")
DONE_S = 60


def cluster(*waiting: str) -> Picture:
    built = Cluster()
    built.node("n0", gpus=8)
    built.project("a", quota=8)
    built.job("runs", "a", gpus=1, pods=8, on="n0")
    for name in waiting:
        built.job(name, "a", gpus=1, pods=2)
    return Picture(built.snapshot())


@dataclass
class Two:
    """A picture of now and one of some seconds ago; forecasts are made once `goes_on` is set."""

    now: Picture
    before: Picture
    is_ready: bool = True
    goes_on: threading.Event = field(default_factory=threading.Event)
    n_foretold: int = 0

    def take(self) -> tuple[Picture, AsOf]:
        return self.now, NOW

    def take_decided(self) -> tuple[Picture, AsOf]:
        return self.before, BEFORE

    def imagine(self, wanted: Wanted) -> WorkloadView | None:
        return imagined(wanted.name, "a", wanted.namespace, 1000, wanted.pod_sets[0].count)

    def published(self, key: str) -> str:
        return "NotWhatIsDecided"

    def tell(self, picture: Picture, _workload: WorkloadView) -> Forecast:
        self.n_foretold += 1
        if picture is self.now:
            assert self.goes_on.wait(DONE_S)
        return Forecast("no forecast")


@pytest.fixture
async def two() -> Two:
    return Two(cluster("wait", "young"), cluster("wait"))


@pytest.fixture
async def client(two: Two) -> AsyncIterator[TestClient]:  # type: ignore[type-arg]
    server = TestServer(Questions(two, two).app(), host="127.0.0.1")
    async with TestClient(server) as opened:
        yield opened
        two.goes_on.set()


async def test_lists_do_not_wait_for_an_explanation(client: TestClient, two: Two) -> None:  # type: ignore[type-arg]
    explained = asyncio.create_task(client.get(f"{ROOT}/namespaces/ns/explanations/wait"))
    while not two.n_foretold:
        await asyncio.sleep(0.01)
    for path in ("shares", "queues", "namespaces/ns/explanations/wait?tried=false"):
        answer = await asyncio.wait_for(client.get(f"{ROOT}/{path}"), DONE_S)
        told = await answer.json()
        assert (answer.status, told["asOf"]["resourceVersion"]) == (200, "1"), path
    assert not explained.done()
    two.goes_on.set()
    told = await (await explained).json()
    assert told["asOf"]["resourceVersion"] == "2"
    assert told["checks"]
    assert told["agrees"] is False


async def test_what_is_not_tried_is_not_compared_with_the_controller(
    client: TestClient,  # type: ignore[type-arg]
) -> None:
    """The controller may have said something since the picture was taken."""
    answer = await client.get(f"{ROOT}/namespaces/ns/explanations/wait?tried=false")
    told = await answer.json()
    assert told["reason"] == "OverFairShare"
    assert told.keys().isdisjoint({"checks", "waysOut", "published", "agrees"})


async def test_work_that_is_younger_than_the_picture_is_found(
    client: TestClient,  # type: ignore[type-arg]
    two: Two,
) -> None:
    two.goes_on.set()
    answer = await client.get(f"{ROOT}/namespaces/ns/explanations/young?tried=false")
    assert (answer.status, (await answer.json())["asOf"]["resourceVersion"]) == (200, "2")
    answer = await client.get(f"{ROOT}/namespaces/ns/explanations/none?tried=false")
    assert answer.status == 404


async def test_a_question_whose_client_has_gone_is_not_answered(
    client: TestClient,  # type: ignore[type-arg]
    two: Two,
) -> None:
    first = asyncio.create_task(client.get(f"{ROOT}/namespaces/ns/explanations/wait"))
    while not two.n_foretold:
        await asyncio.sleep(0.01)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.get(f"{ROOT}/namespaces/ns/explanations/young"), 0.2)
    two.goes_on.set()
    assert (await first).status == 200
    last = await client.get(f"{ROOT}/namespaces/ns/explanations/wait")
    assert last.status == 200
    assert two.n_foretold == 2


async def test_a_simulation_says_of_each_workload_what_becomes_of_it(client: TestClient) -> None:  # type: ignore[type-arg]
    pod_sets = [{"template": {"spec": {"containers": []}}, "count": 2}]
    spec = {"workloads": [{"namespace": "ns", "name": "train", "podSets": pod_sets}]}
    answer = await client.post(f"{ROOT}/simulations", json={"spec": spec})
    told = await answer.json()
    assert answer.status == 201, told
    assert told["spec"]["workloads"][0]["podSets"] == pod_sets
    (prospect,) = told["status"]["workloads"]
    assert (prospect["workload"], prospect["state"]) == ("ns/train", "waits")
    spec["workloads"][0]["podSets"] = [{"template": []}]
    refused = await client.post(f"{ROOT}/simulations", json={"spec": spec})
    assert refused.status == 422
    assert "ns/train: its pod template can't be read" in (await refused.json())["message"]
