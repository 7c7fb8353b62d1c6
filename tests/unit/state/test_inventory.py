"""Nodes and GpuNodes that do not match."""

import pytest

from extender.api.events import Removed, Upserted
from extender.api.kinds import Device, GpuNode
from extender.api.objects import Node
from tests.support.builders import CARD_MIB, gpu_node, node, pod, row, whole
from tests.unit.state.model import state_of


def test_a_node_with_gpus_and_no_ledger_gets_one_as_its_labels_tell() -> None:
    state = state_of(node("n1").gpus(2, model="A100").build(), node("plain").build())
    cards = tuple(Device(index=i, memory_mib=CARD_MIB, model="A100") for i in range(2))
    assert state.differences().to_create == {"n1": cards}


def test_a_ledger_without_devices_is_to_be_described() -> None:
    state = state_of(node("n1").gpus(1).build(), gpu_node("n1").build())
    differences = state.differences()
    assert differences.to_create == {}
    assert differences.to_describe.keys() == {"n1"}


def described(host: Node, ledger: GpuNode) -> list[tuple[int, int, str]] | None:
    """Index, memory and model of the cards with which the ledger is described anew, if it is."""
    found = state_of(host, ledger).differences().to_describe.get("n1")
    return [(each.index, each.memory_mib, each.model) for each in found] if found else None


def test_a_ledger_follows_the_labels_of_its_node_where_no_agent_has_described_it() -> None:
    """Feature discovery labels a node after the device plugin has registered its cards."""
    early = gpu_node("n1").cards(2, mib=0).build()
    assert described(node("n1").gpus(2, model="A100").build(), early) == [
        (0, CARD_MIB, "A100"),
        (1, CARD_MIB, "A100"),
    ]
    ledger = gpu_node("n1").cards(2, model="A100").build()
    assert described(node("n1").gpus(2, model="A100").build(), ledger) is None
    more = [(index, CARD_MIB, "A100") for index in range(3)]
    assert described(node("n1").gpus(3, model="A100").build(), ledger) == more
    # A label that is away for a moment takes nothing away.
    unsized = node("n1").labels({"nvidia.com/gpu.count": "2"}).build()
    assert described(unsized, ledger) is None
    assert described(node("n1").build(), ledger) is None


def test_a_card_that_the_labels_no_longer_tell_stays_while_a_row_holds_it() -> None:
    held = pod("a").needs(1000).bound("n1").build()
    ledger = gpu_node("n1").cards(4).holds(row(held, whole(2), "bound")).build()
    host = node("n1").gpus(1).build()
    assert described(host, ledger) == [(0, CARD_MIB, ""), (2, CARD_MIB, "")]
    assert described(host, gpu_node("n1").cards(4).build()) == [(0, CARD_MIB, "")]


def test_health_and_what_an_agent_has_described_are_not_the_labels_to_say() -> None:
    ill = gpu_node("n1").cards(2).sick(1).build()
    assert described(node("n1").gpus(2).build(), ill) is None
    by_agent = gpu_node("n1").cards(2).build()
    for device in by_agent.status.devices:
        device.uuid = f"GPU-{device.index}"
    assert described(node("n1").gpus(3).build(), by_agent) is None


def test_gpu_milli_is_what_healthy_cards_are_worth() -> None:
    ledger = gpu_node("n1", 2).sick(1).build()
    state = state_of(node("n1").gpus(2).gpu_milli(2000).build(), ledger)
    assert state.differences().gpu_milli == {"n1": 1000}
    state.apply(Upserted(node("n1").gpus(2).gpu_milli(1000).build()))
    assert state.differences().gpu_milli == {}


def test_a_ledger_whose_node_is_gone_is_reported() -> None:
    state = state_of(gpu_node("n1", 1).build())
    assert state.differences().without_node == {"n1"}
    state.apply(Removed(GpuNode, "uid-gpu-n1", "", "n1"))
    assert state.differences().without_node == frozenset()


def test_a_ledger_is_to_be_labelled_with_its_nodes_pool() -> None:
    labelled = gpu_node("n2", 1).labels({"ballast.dev/node-pool": "default"}).build()
    state = state_of(node("n1").build(), gpu_node("n1", 1).build(), node("n2").build(), labelled)
    assert state.differences().pool_labels == {"n1": "default"}


@pytest.mark.parametrize(
    ("label", "value", "is_used"),
    [
        ("nvidia.com/gpu.replicas", "4", False),
        ("nvidia.com/gpu.sharing-strategy", "mps", False),
        ("nvidia.com/gpu.replicas", "1", True),
        ("nvidia.com/gpu.sharing-strategy", "none", True),
    ],
)
def test_a_node_whose_device_plugin_shares_cards_is_not_used(
    label: str, value: str, is_used: bool
) -> None:
    state = state_of(node("n1").labels({"nvidia.com/gpu.count": "2", label: value}).build())
    assert bool(state.differences().to_create) is is_used
    assert any("shares cards" in each.text for each in state.problems()) is not is_used


@pytest.mark.parametrize("count", ["eight", "65", "-1", "08"])
def test_labels_that_make_no_sense_are_reported_and_give_no_cards(count: str) -> None:
    state = state_of(node("n1").labels({"nvidia.com/gpu.count": count}).build())
    assert state.differences().to_create == {}
    (problem,) = map(str, state.problems())
    assert problem.startswith("Node n1: ")
