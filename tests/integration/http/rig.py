"""Objects in a real API server for the extender, and extenders that watch it."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from extender.api.kinds import CardShare, GpuNode, Row
from extender.api.objects import Pod
from extender.kube.client import Client
from extender.kube.resources import GPU_NODES, PODS, PROJECTS
from tests.support.builders import CARD_MIB
from tests.support.controlplane.handles import Api
from tests.unit.http.rig import Running, running

SEEN_WITHIN_S = 90.0


async def until(is_met: Callable[[], Awaitable[bool]], what: str) -> None:
    """Return once the condition holds; TimeoutError, naming it, when it does not."""
    try:
        async with asyncio.timeout(SEEN_WITHIN_S):
            while not await is_met():
                await asyncio.sleep(0.01)
    except TimeoutError as error:
        raise TimeoutError(f"not seen in {SEEN_WITHIN_S:g} s: {what}") from error


@dataclass
class World:
    """An API server with a project that owns the test's namespace."""

    client: Client
    namespace: str
    kubeconfig: str

    async def add_project(self, quota: str = "100", name: str = "team-a") -> None:
        spec = {
            "department": "science",
            "namespaces": [self.namespace],
            "nodePools": [{"name": "default", "gpu": {"quota": quota}}],
        }
        await self.client.create(PROJECTS, {"metadata": {"name": name}, "spec": spec})

    async def add_node(self, name: str, cards: int = 8, rows: Sequence[Row] = ()) -> GpuNode:
        """A GpuNode with healthy cards and these rows."""
        body = {"metadata": {"name": name}, "spec": {"rows": to_builtins(list(rows))}}
        await self.client.create(GPU_NODES, body)
        devices = [{"index": index, "memoryMiB": CARD_MIB} for index in range(cards)]
        status = {"status": {"devices": devices}}
        return await self.client.merge_patch(GPU_NODES, name, status, subresource="status")

    async def add_pod(
        self, name: str, fraction: str = "0.5", *, priority_class: str = "", **annotations: str
    ) -> Pod:
        """A pod of our scheduler's, without gate; keys of `annotations` are under ballast.dev/."""
        ours = {f"ballast.dev/{key}": value for key, value in annotations.items()}
        milli = {"ballast.dev/gpu-milli": str(int(float(fraction) * 1000))}
        container = {
            "name": "main",
            "image": "none",
            "resources": {"requests": milli, "limits": milli},
        }
        body = {
            "metadata": {"name": name, "annotations": {"gpu-fraction": fraction} | ours},
            "spec": {
                "schedulerName": "ballast-scheduler",
                "containers": [container],
                "priorityClassName": priority_class,
            },
        }
        return await self.client.create(PODS, body, self.namespace)

    async def add_planned(self, name: str, node: str, epoch: int = 7) -> Pod:
        """A released pod and its reserved row on card 0 of `node`, which is made too."""
        made = await self.add_pod(name, plan=f"{epoch} {node}")
        await self.add_node(node, rows=[self.row(made, epoch)])
        return made

    def row(self, pod: Pod, epoch: int, **fields: Any) -> Row:
        """A reserved row of half of card 0."""
        meta = pod.metadata
        made = Row(
            uid=meta.uid,
            namespace=self.namespace,
            name=meta.name,
            project="team-a",
            cards=[CardShare(0, 500, CARD_MIB // 2)],
            state="reserved",
            epoch=epoch,
        )
        return replace(made, **fields)

    async def connect(self) -> Client:
        """A client of its own."""
        return await Client.connect(self.kubeconfig)

    async def pod(self, name: str) -> Pod:
        return await self.client.get(PODS, name, self.namespace)

    async def node(self, name: str) -> GpuNode:
        return await self.client.get(GPU_NODES, name)

    async def rows(self, *names: str) -> list[Row]:
        """All rows of these nodes."""
        return [row for name in names for row in (await self.node(name)).spec.rows]

    @asynccontextmanager
    async def extender(self) -> AsyncIterator[Running]:
        """A replica that has listed everything."""
        async with running(self.kubeconfig) as made:
            # kube-scheduler asks again after the usual one; a test does not.
            made.extender.binder.deadline_s = SEEN_WITHIN_S

            async def is_ready() -> bool:
                return made.extender.verbs.is_ready

            await until(is_ready, "a filled cache")
            yield made

    def bind_args(self, pod: Pod, node: str) -> dict[str, str]:
        return {
            "PodName": pod.metadata.name,
            "PodNamespace": self.namespace,
            "PodUID": pod.metadata.uid,
            "Node": node,
        }

    async def bind(self, by: Running, pod: Pod, node: str) -> str:
        """The error of one bind call; empty when the pod is bound."""
        status, answer = await by.post("bind", self.bind_args(pod, node))
        assert status == 200
        return str(answer["Error"])

    async def filter(self, by: Running, pod: Pod, *nodes: str) -> dict[str, Any]:
        """The answer of a filter call with the pod as it is in the API server now."""
        status, answer = await by.post("filter", await self.filter_args(pod, *nodes))
        assert status == 200
        return dict(answer)

    async def filter_args(self, pod: Pod, *nodes: str) -> dict[str, Any]:
        path = PODS.url(self.namespace, pod.metadata.name)
        live = await self.client.get_raw(path)
        return {"Pod": json.loads(live), "Nodes": None, "NodeNames": list(nodes)}


@asynccontextmanager
async def world_of(api: Api) -> AsyncIterator[World]:
    """The test's API server with its project."""
    async with await api.client() as client:
        yield World(client, api.namespace, api.kubeconfig)
