"""Writes of GpuNodes, and how often they happen."""

import asyncio
from typing import Any

import msgspec
import pytest

from extender.api.claims import DeviceClass, ResourceSlice
from extender.api.events import Removed, Upserted
from extender.api.objects import Pod
from extender.cycle.keepers.inventory import InventoryKeeper
from extender.kube.errors import NotFound
from extender.state.cluster import ClusterState
from tests.support import device_cards
from tests.support.builders import gpu_node, node, pod

pytestmark = pytest.mark.looptime


class OldApi:
    """Stores no `foreign`, as with the GpuNode definition of an older release."""

    def __init__(self) -> None:
        self.written: list[list[str]] = []

    async def merge_patch(self, _kind: Any, _name: str, patch: Any, **_: Any) -> Any:
        self.written.append([hold.name for hold in patch["status"]["foreign"]])
        labels = {"ballast.dev/node-pool": "default"}
        return gpu_node("n1", 2).labels(labels).version(len(self.written) + 1).build()


class ApiWithoutDevices:
    """Stores no `device` of a card, as with the GpuNode definition of an older release."""

    def __init__(self) -> None:
        self.written: list[list[str]] = []

    async def merge_patch(self, _kind: Any, _name: str, patch: Any, **_: Any) -> Any:
        self.written.append([each.device for each in patch["status"]["devices"]])
        labels = {"ballast.dev/node-pool": "default"}
        return gpu_node("n1", 2).labels(labels).version(len(self.written) + 1).build()


class ApiWithoutDefinition:
    """Has no GpuNodes, as when their definition was deleted by mistake."""

    def __init__(self) -> None:
        self.n_created = 0

    async def create(self, *_: Any) -> None:
        self.n_created += 1
        raise NotFound("gpunodes")


async def test_nodes_are_not_taken_in_again_in_every_cycle_while_gpunode_is_not_defined() -> None:
    state, api = ClusterState(), ApiWithoutDefinition()
    state.apply(Upserted(node("n1").gpus(2).gpu_milli(2000).build()))
    keeper = InventoryKeeper(api, state)  # type: ignore[arg-type]
    for _ in range(10):
        await keeper.keep()
        await asyncio.sleep(1)
    assert api.n_created == 1
    await asyncio.sleep(30)
    await keeper.keep()
    assert api.n_created == 2


async def test_cards_that_are_not_stored_as_described_are_not_described_in_every_cycle() -> None:
    state, api = ClusterState(), ApiWithoutDevices()
    labels = {"ballast.dev/node-pool": "default"}
    for obj in (
        node("n1").gpu_milli(2000).build(),
        gpu_node("n1", 2).labels(labels).build(),
        msgspec.convert(device_cards.device_class(), DeviceClass),
        msgspec.convert(device_cards.resource_slice("n1", 2), ResourceSlice),
    ):
        state.apply(Upserted(obj))
    keeper = InventoryKeeper(api, state)  # type: ignore[arg-type]
    for _ in range(10):
        await keeper.keep()
        await asyncio.sleep(1)
    assert api.written == [[f"{device_cards.DRIVER}/n1/gpu-{ix}" for ix in range(2)]]


async def test_a_status_that_does_not_stay_is_not_written_in_every_cycle() -> None:
    state, api = ClusterState(), OldApi()
    labels = {"ballast.dev/node-pool": "default"}
    foreign = pod("s").of("elsewhere").needs(1000).unledgered().bound("n1").build()
    for obj in (
        node("n1").gpus(2).gpu_milli(2000).build(),
        gpu_node("n1", 2).labels(labels).build(),
        foreign,
    ):
        state.apply(Upserted(obj))
    keeper = InventoryKeeper(api, state)  # type: ignore[arg-type]
    for _ in range(10):
        await keeper.keep()
        await asyncio.sleep(1)
    assert api.written == [["s"]]
    await asyncio.sleep(30)
    await keeper.keep()
    assert api.written == [["s"], ["s"]]
    other = pod("t").of("elsewhere").needs(1000).unledgered().bound("n1").build()
    state.apply(Upserted(other))
    await keeper.keep()
    assert api.written[2:] == [["s", "t"]]
    for gone in (foreign, other):
        meta = gone.metadata
        state.apply(Removed(Pod, meta.uid, meta.namespace, meta.name))
    await keeper.keep()
    assert len(api.written) == 3
