"""What preflight says of cards that drivers of dynamic resource allocation publish."""

from typing import Any

import msgspec

from extender.api.claims import DeviceClass, ResourceSlice
from extender.cli.checks.checked import judge
from extender.preflight.findings import State
from tests.support import device_cards
from tests.unit.preflight.test_checks import finding, good, node, states


def device_class(**said: Any) -> DeviceClass:
    return msgspec.convert(device_cards.device_class(**said), DeviceClass)


def published(name: str, n_cards: int) -> ResourceSlice:
    return msgspec.convert(device_cards.resource_slice(name, n_cards), ResourceSlice)


def test_class_of_gpus_without_a_label_is_to_be_labelled() -> None:
    found = finding(good(device_classes=[device_class(cards_of="")]), "DRA")
    assert found.state is State.WARN
    assert "ballast.dev/cards-of=DRIVER" in found.advice


def test_published_cards_are_counted() -> None:
    slices = [published("plain", 2), published("other", 3)]
    found = finding(good(device_classes=[device_class()], slices=slices), "DRA")
    assert (found.state, found.found) == (State.OK, "5 cards on 2 nodes are counted")
    nodes = [node("plain", gpus=0)]
    assert states(good(device_classes=[device_class()], slices=slices, nodes=nodes)) == {State.OK}


def test_node_with_a_driver_and_a_device_plugin_is_told() -> None:
    facts = good(device_classes=[device_class()], slices=[published("gpu", 8)])
    found = finding(facts, "DRA")
    assert (found.state, "gpu have cards" in found.found) == (State.WARN, True)


def test_node_with_a_driver_on_which_the_node_agent_runs_is_told() -> None:
    slices = [published("gpu", 8)]
    facts = good(
        device_classes=[device_class()],
        slices=slices,
        nodes=[node("gpu", labelled={"ballast.dev/node-agent": "off"})],
    )
    assert "the node agent runs" not in " ".join(each.found for each in judge(facts))
    facts.nodes = [node("gpu")]
    assert "the node agent runs" in " ".join(each.found for each in judge(facts))


def test_class_that_stands_for_another_resource_is_told() -> None:
    found = finding(good(device_classes=[device_class(mapped="example.com/gpu")]), "DRA")
    assert "example.com/gpu" in found.found
    assert states(good(device_classes=[device_class(mapped="nvidia.com/gpu")])) == {State.OK}
