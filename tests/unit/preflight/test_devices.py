"""Findings of preflight for cards of DRA drivers."""

from typing import Any

import msgspec
from msgspec import structs

from extender.api.claims import DeviceClass, ResourceSlice
from extender.cli.checks.checked import judge
from extender.preflight.findings import State
from tests.support import device_cards
from tests.unit.preflight.test_checks import finding, good, node, states


def device_class(**said: Any) -> DeviceClass:
    return msgspec.convert(device_cards.device_class(**said), DeviceClass)


def published(name: str, n_cards: int) -> ResourceSlice:
    """As the API server has it: with a UID of its own."""
    found = msgspec.convert(device_cards.resource_slice(name, n_cards), ResourceSlice)
    return structs.replace(found, metadata=structs.replace(found.metadata, uid=f"uid-{name}"))


def test_class_of_gpus_without_a_label_is_to_be_labelled() -> None:
    found = finding(good(device_classes=[device_class(cards_of="")]), "DRA")
    assert found.state is State.WARN
    assert "ballast.dev/cards-of=DRIVER" in found.advice


def test_classes_that_nvidias_driver_installs_need_no_label() -> None:
    installed = ("gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com")
    classes = [device_class(name=name, cards_of="") for name in installed]
    assert "DRA" not in {each.check for each in judge(good(device_classes=classes))}


def test_published_cards_are_counted() -> None:
    slices = [published("plain", 2), published("other", 3)]
    found = finding(good(device_classes=[device_class()], slices=slices), "DRA")
    assert (found.state, found.found) == (State.OK, "5 cards on 2 nodes are counted")
    nodes = [node("plain", gpus=0)]
    assert states(good(device_classes=[device_class()], slices=slices, nodes=nodes)) == {State.OK}


def test_node_with_a_driver_and_a_device_plugin_is_reported() -> None:
    facts = good(device_classes=[device_class()], slices=[published("gpu", 8)])
    found = finding(facts, "DRA")
    assert (found.state, "gpu have cards" in found.found) == (State.WARN, True)


def test_node_with_a_driver_on_which_the_node_agent_runs_is_reported() -> None:
    slices = [published("gpu", 8)]
    facts = good(
        device_classes=[device_class()],
        slices=slices,
        nodes=[node("gpu", labelled={"ballast.dev/node-agent": "off"})],
    )
    assert "the node agent runs" not in " ".join(each.found for each in judge(facts))
    facts.nodes = [node("gpu")]
    assert "the node agent runs" in " ".join(each.found for each in judge(facts))


def test_cards_that_claims_share_are_counted_where_a_node_has_no_others() -> None:
    shared = msgspec.convert(device_cards.resource_slice("gpu", 2, is_shared=True), ResourceSlice)
    facts = good(device_classes=[device_class()], slices=[shared], nodes=[node("gpu", gpus=0)])
    assert finding(facts, "DRA").found == "2 cards on 1 nodes are counted"
    facts.slices = [shared, published("gpu", 1)]
    found = finding(facts, "DRA")
    assert (found.state, "claims may share" in found.found) == (State.WARN, True)


def test_class_that_stands_for_another_resource_is_reported() -> None:
    found = finding(good(device_classes=[device_class(mapped="example.com/gpu")]), "DRA")
    assert "example.com/gpu" in found.found
    assert states(good(device_classes=[device_class(mapped="nvidia.com/gpu")])) == {State.OK}


def test_of_a_pool_the_newest_generation_counts_as_for_the_controller() -> None:
    old, new = published("plain", 2), published("plain", 3)
    meta = structs.replace(new.metadata, uid="uid-new")
    pool = structs.replace(new.spec.pool, generation=old.spec.pool.generation + 1)
    new = structs.replace(new, metadata=meta, spec=structs.replace(new.spec, pool=pool))
    found = finding(good(device_classes=[device_class()], slices=[old, new]), "DRA")
    assert found.found == "3 cards on 1 nodes are counted"
