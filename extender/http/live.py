"""Live reads of single objects, for what the caches cannot tell."""

from typing import Final

from extender.api.events import Upserted
from extender.api.objects import Pod
from extender.http.book import Book
from extender.http.metrics import LIVE_READS
from extender.kube.client import Client
from extender.kube.errors import NotFound
from extender.kube.resources import GPU_NODES, PODS, RESOURCE_CLAIMS

_GPU_NODE_READS: Final = LIVE_READS.labels("GpuNode")
_POD_READS: Final = LIVE_READS.labels("Pod")
_CLAIM_READS: Final = LIVE_READS.labels("ResourceClaim")


class LiveReader:
    """Reads objects live. Raises the client's errors, except NotFound."""

    def __init__(self, client: Client, book: Book) -> None:
        self._client = client
        self._book = book

    async def read_node(self, name: str) -> None:
        """Update this GpuNode in the book; a missing one stays unknown."""
        _GPU_NODE_READS.inc()
        try:
            node = await self._client.get(GPU_NODES, name)
        except NotFound:
            return
        self._book.apply(Upserted(node))

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        """The pod as it is now, or None."""
        _POD_READS.inc()
        try:
            return await self._client.get(PODS, name, namespace)
        except NotFound:
            return None

    async def read_devices(self, pod: Pod) -> frozenset[str]:
        """Names of all devices that are allocated to the pod's claims now."""
        namespace, found = pod.metadata.namespace, set[str]()
        for name in pod.claim_names:
            _CLAIM_READS.inc()
            try:
                claim = await self._client.get(RESOURCE_CLAIMS, name, namespace)
            except NotFound:
                continue
            allocation = claim.status.allocation
            found.update(each.id for each in (allocation and allocation.devices.results) or ())
        return frozenset(found)
