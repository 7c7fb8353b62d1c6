"""Gives every GPU node a GpuNode, and its Node status the number of milli-GPU.

Until a node agent reports devices, they come from the labels of GPU feature discovery. The Node
status is written whenever it differs, because kubelet may zero it on a restart. The GpuNode status
lists what pods without a row hold, because the extender watches no pods.
"""

import asyncio
from collections.abc import Mapping
from typing import Final, Generic, TypeVar

import msgspec
import structlog

from extender.api.events import Upserted
from extender.api.kinds import Device, ForeignHold, GpuNodeSpec
from extender.api.ledger import devices_status
from extender.api.names import GPU_MILLI, LABEL_NODE_POOL
from extender.cycle.writes import write_all
from extender.kube.client import Client
from extender.kube.errors import AlreadyExists, NotFound
from extender.kube.resources import GPU_NODES, NODES
from extender.state.cluster import ClusterState

#: At startup every node may lack its GpuNode.
_WRITES_AT_ONCE: Final = 32
#: Seconds until an unchanged value is written again.
_SAME_AGAIN_S: Final = 30.0

V = TypeVar("V")
log = structlog.get_logger(__name__)


class _Written(Generic[V]):
    """Values written lately, by node. The API server may drop a field again if its definition of
    GpuNode is older, or may have no such kind."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[V, float]] = {}

    def due(self, found: Mapping[str, V]) -> Mapping[str, V]:
        """The values of `found` that were not written lately."""
        now = asyncio.get_running_loop().time()
        self._last = {
            name: (value, at)
            for name, (value, at) in self._last.items()
            if now - at < _SAME_AGAIN_S and found.get(name) == value
        }
        return {name: value for name, value in found.items() if name not in self._last}

    def note(self, name: str, value: V) -> None:
        """The value was written for the node now."""
        self._last[name] = value, asyncio.get_running_loop().time()


class InventoryKeeper:
    """Removes the differences between Nodes and GpuNodes."""

    def __init__(self, client: Client, state: ClusterState) -> None:
        self._client = client
        self._state = state
        self._shown = _Written[tuple[ForeignHold, ...]]()
        self._described = _Written[tuple[Device, ...]]()
        self._not_created = _Written[tuple[Device, ...]]()

    async def keep(self) -> None:
        """One pass; a failed write is logged and tried again in the next."""
        found = self._state.differences()
        writes = [
            *(
                self._create(name, devices)
                for name, devices in self._not_created.due(found.to_create).items()
            ),
            *(
                self._describe(name, devices)
                for name, devices in self._described.due(found.to_describe).items()
            ),
            *(self._drop(name) for name in found.without_node),
            *(self._label(name, pool) for name, pool in found.pool_labels.items()),
            *(
                self._show_foreign(name, holds)
                for name, holds in self._shown.due(found.foreign).items()
            ),
            *(self._show_capacity(name, milli) for name, milli in found.gpu_milli.items()),
        ]
        await write_all(writes, at_once=_WRITES_AT_ONCE, what="inventory")

    async def _create(self, name: str, devices: tuple[Device, ...]) -> None:
        body = {"metadata": {"name": name}, "spec": msgspec.to_builtins(GpuNodeSpec.of([]))}
        try:
            await self._client.create(GPU_NODES, body)
        except AlreadyExists:
            return  # the watch will deliver it
        except NotFound:
            self._not_created.note(name, devices)  # GpuNode is not defined
            raise
        await self._describe(name, devices)
        log.info("node taken into the ledger", node=name, cards=len(devices))

    async def _describe(self, name: str, devices: tuple[Device, ...]) -> None:
        patch = {"status": devices_status(devices)}
        node = await self._client.merge_patch(GPU_NODES, name, patch, subresource="status")
        self._described.note(name, devices)
        self._state.apply(Upserted(node))

    async def _show_foreign(self, name: str, holds: tuple[ForeignHold, ...]) -> None:
        patch = {"status": {"foreign": list(holds)}}
        node = await self._client.merge_patch(GPU_NODES, name, patch, subresource="status")
        self._shown.note(name, holds)
        self._state.apply(Upserted(node))

    async def _drop(self, name: str) -> None:
        node = self._state.gpu_node(name)
        if node is None or node.spec.rows:
            return  # a lost node may still run its pods
        meta = node.metadata
        # The resourceVersion refuses the deletion if a row was written since.
        await self._client.delete(
            GPU_NODES, name, uid=meta.uid, resource_version=meta.resource_version
        )

    async def _label(self, name: str, pool: str) -> None:
        """Label the GpuNode with its node's pool, because the extender does not watch Nodes."""
        patch = {"metadata": {"labels": {LABEL_NODE_POOL: pool}}}
        self._state.apply(Upserted(await self._client.merge_patch(GPU_NODES, name, patch)))

    async def _show_capacity(self, name: str, milli: int) -> None:
        listed = {GPU_MILLI: str(milli)}
        patch = {"status": {"capacity": listed, "allocatable": listed}}
        node = await self._client.merge_patch(NODES, name, patch, subresource="status")
        self._state.apply(Upserted(node))
