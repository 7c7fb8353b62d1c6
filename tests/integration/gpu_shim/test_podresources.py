"""Kubelet's PodResources API, served as by kubelet, and how the agent uses it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from extender.api.kinds import CardShare, Device, GpuNode, GpuNodeSpec, Row
from extender.api.objects import ObjectMeta
from extender.kube.client import Client
from gpu_shim.agent.agent import Agent
from gpu_shim.agent.cards import Cards
from gpu_shim.agent.health import Health
from gpu_shim.agent.holders import (
    EVERY_S,
    SOON_S,
    Holders,
    Style,
    holder_name,
    holds_of,
    shared_indices,
)
from gpu_shim.agent.indices import Hold
from gpu_shim.agent.podresources import Given, KubeletError, PodResources
from gpu_shim.agent.proto import podresources_pb2 as pb
from gpu_shim.home import LIBRARIES
from tests.integration.kube.fakeapi import FakeApi, pod_list
from tests.unit.gpu_shim.test_nri_plugin import Doors

STYLE = Style("node-a", "ballast-node", "pause")


@dataclass(slots=True)
class Kubelet:
    """A kubelet's socket, and what it says."""

    socket: Path
    pods: list[tuple[str, str, str, tuple[str, ...]]] = field(default_factory=list)
    asked_as: set[str] = field(default_factory=set)
    _server: grpc.aio.Server | None = None

    async def start(self) -> None:
        def listed(_request: object, context: "grpc.aio.ServicerContext[Any, Any]") -> object:
            self.asked_as.add(context.peer())
            return pb.ListPodResourcesResponse(
                pod_resources=[
                    pb.PodResources(
                        namespace=namespace,
                        name=name,
                        containers=[
                            pb.ContainerResources(
                                name="c",
                                devices=[
                                    pb.ContainerDevices(resource_name=resource, device_ids=ids)
                                ],
                            )
                        ],
                    )
                    for namespace, name, resource, ids in self.pods
                ]
            )

        handler = grpc.unary_unary_rpc_method_handler(
            listed,
            request_deserializer=pb.ListPodResourcesRequest.FromString,
            response_serializer=pb.ListPodResourcesResponse.SerializeToString,
        )
        self._server = grpc.aio.server()
        service = "v1.PodResourcesLister"
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, {"List": handler}),)
        )
        self._server.add_insecure_port(f"unix:{self.socket}")
        await self._server.start()

    async def stop(self) -> None:
        assert self._server is not None
        await self._server.stop(None)


@pytest.fixture
async def kubelet(place: Path) -> AsyncIterator[Kubelet]:
    made = Kubelet(place / "kubelet.sock")
    await made.start()
    yield made
    await made.stop()


async def test_gpus_are_told_by_pod_and_copies_of_one_are_one(kubelet: Kubelet) -> None:
    gpu = "nvidia.com/gpu"
    kubelet.pods = [
        ("team", "two", gpu, ("GPU-a", "GPU-b")),
        ("team", "copies", gpu, ("GPU-c::0", "GPU-c::4")),
        ("team", "other", "example.com/nic", ("eth1",)),
    ]
    client = PodResources(kubelet.socket)
    assert await client.given() == [
        Given("team", "two", ("GPU-a", "GPU-b")),
        Given("team", "copies", ("GPU-c",)),
    ]
    await client.close()


async def test_a_kubelet_that_restarts_is_found_again(kubelet: Kubelet) -> None:
    client = PodResources(kubelet.socket)
    assert await client.given() == []
    await kubelet.stop()
    with pytest.raises(KubeletError):
        await client.given()
    await kubelet.start()
    for _ in range(20):
        try:
            assert await client.given() == []
            break
        except KubeletError:
            continue
    await client.close()


def row(name: str, *shares: tuple[int, int]) -> Row:
    cards = [CardShare(index, milli, 1) for index, milli in shares]
    return Row(uid=name, namespace="team", name=name, cards=cards, state="bound")


def test_only_cards_of_which_somebody_has_a_part_need_a_holder() -> None:
    rows = [row("a", (0, 500)), row("b", (0, 250), (2, 250)), row("c", (1, 1000))]
    assert shared_indices(rows) == {0, 2}


def test_kubelets_word_is_put_together_with_the_rows() -> None:
    rows = [row("share", (2, 500)), row("whole", (0, 1000), (1, 1000))]
    given = [
        Given("ballast-node", holder_name("node-a", 2), ("GPU-x",)),
        Given("ballast-node", holder_name("node-a", 7), ("GPU-left",)),
        Given("team", "whole", ("GPU-y", "GPU-z")),
        Given("team", "nobody", ("GPU-w",)),
    ]
    holds, strangers = holds_of(rows, given, STYLE)
    assert holds == [Hold((2,), ("GPU-x",)), Hold((0, 1), ("GPU-y", "GPU-z"))]
    assert strangers == ["team/nobody has GPU-w without a row"]


async def test_the_api_server_is_left_alone_while_kubelet_says_that_all_is_as_it_should_be(
    kubelet: Kubelet, place: Path
) -> None:
    doors: Any = Doors()
    for name in LIBRARIES:
        (place / name).touch()
    card = Device(index=0, memory_mib=1, uuid="GPU-a")
    agent = Agent("node-a", [card], doors, place, place / "pods")
    cards = Cards(agent, agent.devices, Health(place / "health", "b"), is_by_plugin=True)
    cards.begin(None)
    shared = GpuNode(metadata=ObjectMeta(name="n"), spec=GpuNodeSpec(rows=[row("a", (0, 500))]))
    agent.apply(shared)
    name = holder_name("node-a", 0)
    async with (
        FakeApi([pod_list(1, [])], [], [(201, {"metadata": {"name": name}})]) as api,
        await Client.connect(api.kubeconfig(place)) as client,
    ):
        holders = Holders(client, PodResources(kubelet.socket), cards, STYLE)
        assert holders.pause_s() == EVERY_S
        await holders.keep()
        assert api.seen == ["list", "write"]
        assert holders.pause_s() == SOON_S, "the pod that shares the card waits for this"
        kubelet.pods = [(STYLE.namespace, name, "nvidia.com/gpu", ("GPU-a",))]
        for _ in range(3):
            await holders.keep()
        assert api.seen == ["list", "write"]
        assert holders.pause_s() == EVERY_S
        agent.apply(None)
        await holders.keep()
        assert api.seen == ["list", "write", "list"]


def test_holders_of_two_nodes_never_have_the_same_name() -> None:
    assert holder_name("node-a", 1) != holder_name("node-b", 1)
    assert len(holder_name("n" * 253, 63)) < 64
