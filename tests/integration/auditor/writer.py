"""A writer of pods and ledgers that can do wrong: what the auditor must catch is done here.

It speaks to the API server directly, since our own client and ledger refuse to write like this.
"""

import base64
import json
import ssl
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

GPU_NODES = "/apis/ballast.dev/v1alpha1/gpunodes"
GATE = "ballast.dev/admission"
CARD_MIB = 80000
EPOCH = 7
JSON = "application/json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"


class RefusedError(Exception):
    """The API server refused a write; `status` is its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Writer:
    """One tenant's pods on nodes of two cards each."""

    def __init__(self, kubeconfig: str, namespace: str, scratch: Path) -> None:
        config = json.loads(Path(kubeconfig).read_text())
        self._url = config["clusters"][0]["cluster"]["server"]
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._namespace = namespace
        self._tls = _tls(config, scratch)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._tls)
        self._session = aiohttp.ClientSession(self._url, connector=connector)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    # -- the good way ------------------------------------------------------------------------

    async def add_node(self, name: str) -> None:
        """A Node and its GpuNode with two healthy cards."""
        await self._send("POST", "/api/v1/nodes", {"metadata": {"name": name}})
        meta = {"metadata": {"name": name}} | _type("GpuNode")
        await self._send("POST", GPU_NODES, meta | {"spec": {"rows": []}})
        devices = [{"index": ix, "memoryMiB": CARD_MIB} for ix in range(2)]
        patch = {"status": {"devices": devices}}
        await self._send("PATCH", f"{GPU_NODES}/{name}/status", patch, MERGE)

    async def add_project(self, name: str, quota: int) -> None:
        """A project without a department."""
        spec = {
            "department": "none",
            "nodePools": [{"name": "default", "gpu": {"quota": quota}}],
        }
        body = _type("GpuProject") | {"metadata": {"name": name}, "spec": spec}
        await self._send("POST", "/apis/ballast.dev/v1alpha1/gpuprojects", body)

    async def add_pod(self, name: str, fraction: str, **more: Any) -> dict[str, Any]:
        """A gated pod as our webhook leaves it. More: labels."""
        milli = int(fraction[2:].ljust(3, "0"))
        amount = {"ballast.dev/gpu-milli": str(milli)}
        body = {
            "metadata": {
                "name": name,
                "labels": more.get("labels", {}),
                "annotations": {"gpu-fraction": fraction},
            },
            "spec": {
                "schedulerName": "nobody",
                "schedulingGates": [{"name": GATE}],
                "containers": [
                    {
                        "name": "main",
                        "image": "none",
                        "resources": {"requests": amount, "limits": amount},
                    }
                ],
            },
        }
        return await self._send("POST", self._pods, body)

    async def gpu_node(self, name: str) -> dict[str, Any]:
        """The GpuNode as it is now."""
        return await self._send("GET", f"{GPU_NODES}/{name}")

    async def reserve(
        self, node: dict[str, Any], pod: dict[str, Any], index: int, milli: int, **more: Any
    ) -> None:
        """Add a row to what was read as `node`; `swaps=False` loses what was written since."""
        rows = [*node["spec"].get("rows", []), self.row(pod, index, milli, **more)]
        await self.write_rows(node, rows, swaps=more.get("swaps", True))

    async def write_rows(
        self, node: dict[str, Any], rows: list[dict[str, Any]], *, swaps: bool = True
    ) -> None:
        """Write all rows of a node, with or without compare-and-swap."""
        patch: dict[str, Any] = {"spec": {"rows": rows}}
        if swaps:
            patch["metadata"] = {"resourceVersion": node["metadata"]["resourceVersion"]}
        await self._send("PATCH", f"{GPU_NODES}/{node['metadata']['name']}", patch, MERGE)

    def row(self, pod: dict[str, Any], index: int, milli: int, **more: Any) -> dict[str, Any]:
        """A row of `milli` on one card."""
        return {
            "uid": pod["metadata"]["uid"],
            "namespace": self._namespace,
            "name": pod["metadata"]["name"],
            "project": more.get("project", ""),
            "cards": [{"index": index, "milli": milli, "memoryMiB": milli * CARD_MIB // 1000}],
            "state": more.get("state", "reserved"),
            "epoch": EPOCH,
        }

    async def release(self, name: str, node: str) -> None:
        """Remove the gate, with the plan."""
        plan = "/metadata/annotations/ballast.dev~1plan"
        patch = [
            {"op": "add", "path": plan, "value": f"{EPOCH} {node}"},
            {"op": "remove", "path": "/spec/schedulingGates"},
        ]
        await self._send("PATCH", f"{self._pods}/{name}", patch, JSON_PATCH)

    async def bind(self, pod: dict[str, Any], node: str, cards: str = "") -> None:
        """A Binding, with the cards annotation unless `cards` is empty."""
        meta: dict[str, Any] = {"name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        if cards:
            meta["annotations"] = {"ballast.dev/cards": cards}
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": meta,
            "target": {"kind": "Node", "name": node},
        }
        await self._send("POST", f"{self._pods}/{meta['name']}/binding", body)

    async def run(self, name: str, node: str, index: int, fraction: str = "0.5") -> dict[str, Any]:
        """A pod the whole good way: created, reserved, released, bound."""
        pod = await self.add_pod(name, fraction)
        milli = int(fraction[2:].ljust(3, "0"))
        await self.reserve(await self.gpu_node(node), pod, index, milli)
        await self.release(name, node)
        await self.bind(pod, node, cards_text(index, milli))
        return pod

    # -- the rest ----------------------------------------------------------------------------

    async def annotate(self, name: str, cards: str) -> None:
        """Write the cards annotation on its own: the fault `annotate, then bind`."""
        patch = {"metadata": {"annotations": {"ballast.dev/cards": cards}}}
        await self._send("PATCH", f"{self._pods}/{name}", patch, MERGE)

    async def evict(self, name: str) -> None:
        """Ask for the pod's eviction."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        await self._send("POST", f"{self._pods}/{name}/eviction", body)

    async def delete(self, name: str) -> None:
        """Delete the pod at once."""
        await self._send("DELETE", f"{self._pods}/{name}", {"gracePeriodSeconds": 0})

    async def _send(
        self, method: str, path: str, body: object = None, media_type: str = JSON
    ) -> dict[str, Any]:
        if self._session is None:
            raise RuntimeError("the writer is not open")
        async with self._session.request(
            method,
            path,
            data=None if body is None else json.dumps(body),
            headers={"Content-Type": media_type},
            timeout=aiohttp.ClientTimeout(total=10),
        ) as response:
            content = await response.json(content_type=None)
            if response.status >= 300:
                raise RefusedError(response.status, content.get("message", ""))
            answer: dict[str, Any] = content
            return answer


def cards_text(index: int, milli: int) -> str:
    """The cards annotation of one share."""
    return f"{index}:{milli}:{milli * CARD_MIB // 1000}"


def _type(kind: str) -> dict[str, Any]:
    return {"apiVersion": "ballast.dev/v1alpha1", "kind": kind}


def _tls(config: dict[str, Any], scratch: Path) -> ssl.SSLContext:
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    tls = ssl.create_default_context(
        cadata=base64.b64decode(cluster["certificate-authority-data"]).decode()
    )
    certificate, key = scratch / "client.crt", scratch / "client.key"
    certificate.write_bytes(base64.b64decode(user["client-certificate-data"]))
    key.write_bytes(base64.b64decode(user["client-key-data"]))
    tls.load_cert_chain(certificate, key)
    return tls
