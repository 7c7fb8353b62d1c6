"""Queries to a worker cluster, and all failures of the connection."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from extender.api.objects import Condition, ObjectMeta
from extender.dispatch.clusters import WorkerClusters
from extender.dispatch.kinds import (
    ClusterSource,
    ClusterSpec,
    ClusterStatus,
    KubeConfigRef,
    MultiKueueCluster,
)
from extender.dispatch.ranking import Heard
from extender.kube.client import Client
from extender.kube.connection import Connection, Source
from extender.view.answers import WantedWorkload

WANTED = [WantedWorkload(namespace="ns", name="train", pod_sets=[])]
PROSPECT = {"workload": "ns/train", "state": "starts", "withinQuota": True, "new": "field"}


@dataclass
class Servers:
    """One server that plays the manager's API server, with a Secret, and the worker's."""

    data: dict[str, str] = field(default_factory=dict)
    version: str = "1"
    answer: Any = None
    status: int = 201
    delay_s: float = 0.0
    #: A question about more is refused.
    most_workloads: int = 100
    tokens: list[str] = field(default_factory=list)

    async def secret(self, request: web.Request) -> web.Response:
        if request.match_info["name"] != "a":
            return web.json_response({"code": 404, "reason": "NotFound"}, status=404)
        meta = {"name": "a", "namespace": "kueue-system", "resourceVersion": self.version}
        data = {key: base64.b64encode(text.encode()).decode() for key, text in self.data.items()}
        return web.json_response({"metadata": meta, "data": data})

    async def simulation(self, request: web.Request) -> web.Response:
        self.tokens.append(request.headers["Authorization"])
        await asyncio.sleep(self.delay_s)
        if len((await request.json())["spec"]["workloads"]) > self.most_workloads:
            return web.json_response({"code": 413, "message": "too large"}, status=413)
        return web.json_response(self.answer, status=self.status)


def kubeconfig(url: str, **user: Any) -> str:
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": user}],
    }
    return json.dumps(document)


def cluster(location: str = "a", kind: str = "Secret", active: str = "True") -> MultiKueueCluster:
    source = ClusterSource(KubeConfigRef(location, kind))
    status = ClusterStatus([Condition(type="Active", status=active)])
    return MultiKueueCluster(ObjectMeta(name="a"), ClusterSpec(source), status)


@dataclass
class Stage:
    servers: Servers
    clusters: WorkerClusters
    url: str

    async def ask(self, asked: MultiKueueCluster | None = None) -> Heard:
        return await self.clusters.ask("a", asked or cluster(), WANTED)


@pytest.fixture
def within_s() -> float:
    """How long a cluster may take to answer."""
    return 60.0


@pytest.fixture
async def stage(within_s: float) -> AsyncIterator[Stage]:
    servers = Servers(answer={"status": {"workloads": [PROSPECT]}})
    app = web.Application()
    app.router.add_get("/api/v1/namespaces/kueue-system/secrets/{name}", servers.secret)
    app.router.add_post("/apis/view.ballast.dev/v1alpha1/simulations", servers.simulation)
    async with TestServer(app, host="127.0.0.1") as server:
        url = str(server.make_url("")).rstrip("/")
        servers.data = {"kubeconfig": kubeconfig(url, token="first")}
        async with Client(await Connection.open(Source(text=kubeconfig(url)))) as manager:
            clusters = WorkerClusters(manager, "kueue-system", within_s)
            yield Stage(servers, clusters, url)
            await clusters.close()


async def test_the_answer_is_that_of_the_last_workload(stage: Stage) -> None:
    other = {"workload": "ns/other", "state": "waits"}
    stage.servers.answer = {"status": {"workloads": [other, PROSPECT]}}
    heard = await stage.ask()
    assert heard.prospect is not None
    assert (heard.prospect.workload, heard.prospect.is_within_quota) == ("ns/train", True)


async def test_a_new_secret_is_used_from_the_next_question_on(stage: Stage) -> None:
    await stage.ask()
    await stage.ask()
    stage.servers.data = {"kubeconfig": kubeconfig(stage.url, token="second")}
    stage.servers.version = "2"
    await stage.ask()
    assert stage.servers.tokens == ["Bearer first", "Bearer first", "Bearer second"]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({}, "Secret kueue-system/a has no key 'kubeconfig'"),
        ({"kubeconfig": " "}, "its 'kubeconfig' is empty"),
        ({"kubeconfig": "[]"}, "it is not a kubeconfig"),
        ({"kubeconfig": kubeconfig("https://h", exec={"command": "sh"})}, "exec is not allowed"),
    ],
)
async def test_a_secret_that_is_no_way_to_a_cluster_is_said_so(
    stage: Stage, data: dict[str, str], why: str
) -> None:
    stage.servers.data = data
    heard = await stage.ask()
    assert heard.prospect is None
    assert why in heard.silence


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (cluster("missing"), "there is no Secret kueue-system/missing"),
        (cluster(active="False"), "Kueue is not connected to it"),
        (cluster(kind="Path"), "its kubeconfig is in no Secret"),
        (
            MultiKueueCluster(ObjectMeta(name="a"), status=cluster().status),
            "its kubeconfig is in no Secret",
        ),
    ],
)
async def test_a_cluster_that_is_not_set_up_is_said_so(
    stage: Stage, asked: MultiKueueCluster, why: str
) -> None:
    assert why in (await stage.ask(asked)).silence
    assert "no MultiKueueCluster" in (await stage.clusters.ask("b", None, WANTED)).silence


@pytest.mark.parametrize(
    ("status", "answer", "why"),
    [
        (403, {"code": 403}, "may not create simulations.view.ballast.dev"),
        (404, {"code": 404}, "no ballast view is installed there"),
        (422, {"code": 422, "message": "unknown field workloads"}, "unknown field workloads"),
        (201, {"status": {}}, "its answer is empty"),
        (201, {"status": {"workloads": [{"workload": "x", "state": "odd"}]}}, "can't be read"),
        (201, [], "can't be read"),
    ],
)
async def test_an_answer_that_is_none_is_said_so(
    stage: Stage, status: int, answer: Any, why: str
) -> None:
    stage.servers.status, stage.servers.answer = status, answer
    assert why in (await stage.ask()).silence


@pytest.mark.parametrize("within_s", [0.5])
async def test_a_cluster_that_does_not_answer_in_time_is_not_waited_for_again(stage: Stage) -> None:
    stage.servers.delay_s = 2.0
    assert "no answer within 0.5 s" in (await stage.ask()).silence
    assert "no answer within 0.5 s" in (await stage.ask()).silence
    assert len(stage.servers.tokens) == 1


async def test_what_is_under_way_does_not_keep_a_cluster_from_answering(stage: Stage) -> None:
    """A worker refuses a question that is too large, or that names a workload that it has."""
    stage.servers.most_workloads = 1
    under_way = WantedWorkload(namespace="other", name="large", pod_sets=[])
    heard = await stage.clusters.ask("a", cluster(), [under_way, *WANTED])
    assert heard.prospect is not None
    assert heard.prospect.state == "starts"
