"""Nodes and ledgers that do not match."""

import pytest

from extender.api.events import Removed, Upserted
from extender.api.kinds import Device, GpuNode
from tests.support.builders import (
    CARD_MIB,
    gpu_node,
    node,
)
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


def test_gpu_milli_is_what_healthy_cards_are_worth() -> None:
    ledger = gpu_node("n1", 2).sick(1).build()
    state = state_of(node("n1").gpus(2).gpu_milli(2000).build(), ledger)
    assert state.differences().gpu_milli == {"n1": 1000}
    state.apply(Upserted(node("n1").gpus(2).gpu_milli(1000).build()))
    assert state.differences().gpu_milli == {}


def test_a_ledger_whose_node_is_gone_is_told() -> None:
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
def test_labels_that_make_no_sense_are_told_and_give_no_cards(count: str) -> None:
    state = state_of(node("n1").labels({"nvidia.com/gpu.count": count}).build())
    assert state.differences().to_create == {}
    (problem,) = map(str, state.problems())
    assert problem.startswith("Node n1: ")
