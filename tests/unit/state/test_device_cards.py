"""Cards of DRA drivers: those of nodes, and those that claims hold."""

from typing import Any

import msgspec
import pytest
from msgspec import structs

from extender.api.claimed_memory import MemorySteps
from extender.api.claims import DeviceClass, ResourceClaim, ResourceSlice
from extender.api.events import Removed, Upserted
from extender.api.kinds import CardShare
from extender.api.objects import Pod
from extender.state.cluster import ClusterState
from extender.state.nodes import BY_CLAIM, BY_CLAIM_OR_RESOURCE, BY_NODE, BY_SHARE
from tests.support.builders import gpu_node, node, pod, row, whole
from tests.unit.state.model import free_cards, is_ready, state_of

DRIVER = "gpu.example.com"


def offers(state: ClusterState, name: str = "n1") -> frozenset[str]:
    nodes = state.snapshot(0).nodes
    ix = nodes.ix_of(name)
    assert ix is not None
    return nodes.offers[ix]


def device_class(driver: str = DRIVER, mapped: str = "") -> DeviceClass:
    labels = {"ballast.dev/cards-of": driver} if driver else {}
    meta = {"name": "cards", "uid": "uid-class", "labels": labels}
    return msgspec.convert(
        {"metadata": meta, "spec": {"extendedResourceName": mapped}}, type=DeviceClass
    )


def published(
    *names: str, node_name: str = "n1", generation: int = 1, **more: Any
) -> ResourceSlice:
    """A slice of cards with the memory of 80 GiB; `more` are fields of each."""
    device = {"capacity": {"memory": {"value": "80Gi"}}, **more}
    spec = {
        "driver": DRIVER,
        "nodeName": node_name,
        "pool": {"name": node_name, "generation": generation, "resourceSliceCount": 1},
        "devices": [{"name": name, **device} for name in names],
    }
    meta = {"name": f"{node_name}-{generation}", "uid": f"uid-{node_name}-{generation}"}
    return msgspec.convert({"metadata": meta, "spec": spec}, type=ResourceSlice)


def allocated(name: str, *devices: str, to: str = "", **more: Any) -> ResourceClaim:
    results = [
        {"driver": DRIVER, "pool": "n1", "device": device, "request": "r", **more}
        for device in devices
    ]
    users = [{"resource": "pods", "name": to, "uid": f"uid-{to}"}] if to else []
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": users}
    meta = {"name": name, "namespace": "team-a", "uid": f"uid-{name}"}
    return msgspec.convert({"metadata": meta, "status": status}, type=ResourceClaim)


def consumed(name: str, device: str, gib: int, to: str = "") -> ResourceClaim:
    """A claim that has so much memory of a card."""
    return allocated(name, device, to=to, consumedCapacity={"memory": f"{gib}Gi"}, shareID="s")


def host(gpus: int = 0, plugin: int = 0) -> Any:
    """A node whose labels tell so many cards, and whose device plugin has `plugin`."""
    built = node("n1").gpus(gpus).host("64", "64Gi").build()
    built.status.capacity["nvidia.com/gpu"] = plugin
    return built


def ledger(*rows: Any, cards: int = 2) -> Any:
    return gpu_node("n1", cards).holds(*rows).build()


# -- what a node has -------------------------------------------------------------------------


def test_a_node_whose_driver_publishes_its_cards_needs_no_device_plugin() -> None:
    host = node("n1").gpus(2).plugin(2, 0).build()
    state = state_of(gpu_node("n1", 2).build(), host, device_class())
    assert not is_ready(state, "n1")
    state.apply(Upserted(published("gpu-0", "gpu-1")))
    assert is_ready(state, "n1")
    state.validate_state()


def test_published_devices_of_a_marked_class_are_the_cards_of_a_node() -> None:
    state = state_of(host(), device_class(), published("gpu-10", "gpu-9"))
    (found,) = state.differences().to_create.values()
    assert [(each.index, each.memory_mib) for each in found] == [(0, 81920), (1, 81920)]


def test_devices_of_a_class_without_the_label_are_no_cards() -> None:
    state = state_of(host(), device_class(""), published("gpu-0"))
    assert state.differences().to_create == {}


def test_a_node_is_not_counted_twice_where_its_labels_tell_cards_as_well() -> None:
    state = state_of(host(8), device_class(), published("gpu-0", "gpu-1"))
    assert len(state.differences().to_create["n1"]) == 2


@pytest.mark.parametrize(
    "said",
    [
        {"attributes": {"gpu.example.com/type": {"string": "mig"}}},
        {"allowMultipleAllocations": True, "attributes": {"a/type": {"string": "mig"}}},
        {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "80Gi"}, "cores": {}}},
        {"allowMultipleAllocations": True, "capacity": {}},
    ],
)
def test_parts_of_cards_and_devices_that_share_more_than_memory_are_no_cards(
    said: dict[str, Any],
) -> None:
    state = state_of(host(), device_class(), published("gpu-0-mig-1", **said))
    assert state.differences().to_create == {}


def test_a_ledger_that_lists_other_cards_than_are_published_is_described_again() -> None:
    state = state_of(host(), device_class(), ledger(), published("gpu-0"))
    (described,) = state.differences().to_describe.values()
    assert len(described) == 1


def described(state: ClusterState) -> ClusterState:
    """The state once the controller has written what differs."""
    for name, devices in state.differences().to_describe.items():
        known = state.gpu_nodes[name]
        version = str(int(known.metadata.resource_version) + 1)
        meta = structs.replace(known.metadata, resource_version=version)
        status = structs.replace(known.status, devices=list(devices))
        state.apply(Upserted(structs.replace(known, metadata=meta, status=status)))
    assert state.differences().to_describe == {}
    state.validate_state()
    return state


def health(state: ClusterState) -> list[str]:
    return [each.health for each in state.gpu_nodes["n1"].status.devices]


def test_cards_that_are_published_no_more_are_unhealthy_until_they_are_again() -> None:
    """Also for a controller that starts then, and where labels tell cards as well."""
    slices = published("gpu-0", "gpu-1")
    state = described(state_of(host(8), device_class(), ledger(), slices))
    state.apply(Removed(ResourceSlice, "uid-n1-1", "", "n1-1"))
    assert health(described(state)) == ["Unhealthy"] * 2
    assert health(described(state_of(host(), state.gpu_nodes["n1"]))) == ["Unhealthy"] * 2
    state.apply(Upserted(published("gpu-0", "gpu-1", generation=2)))
    assert health(described(state)) == ["Healthy"] * 2


def test_cards_of_a_device_plugin_take_the_place_of_those_that_are_published_no_more() -> None:
    state = described(state_of(host(), device_class(), ledger(), published("gpu-0", "gpu-1")))
    state.apply(Removed(ResourceSlice, "uid-n1-1", "", "n1-1"))
    state.apply(Upserted(host(8, plugin=8)))
    assert health(described(state)) == ["Healthy"] * 8
    state.apply(Upserted(host()))
    assert health(described(state)) == ["Healthy"] * 8


def test_cards_that_an_agent_tells_take_the_place_of_those_that_are_published_no_more() -> None:
    state = described(state_of(host(), device_class(), ledger(), published("gpu-0", "gpu-1")))
    state.apply(Removed(ResourceSlice, "uid-n1-1", "", "n1-1"))
    state.apply(Upserted(gpu_node("n1", 3).version(9).build()))
    assert health(described(state)) == ["Healthy"] * 3


def test_a_node_made_anew_without_a_driver_has_the_cards_that_its_agent_tells() -> None:
    state = state_of(host(2), device_class(), ledger(), published("gpu-0"))
    assert len(state.differences().to_describe["n1"]) == 1
    state.apply(Removed(ResourceSlice, "uid-n1-1", "", "n1-1"))
    for gone in (host(2), ledger()):
        state.apply(Removed(type(gone), gone.metadata.uid, "", "n1"))
    assert state.differences().to_describe == {}
    by_agent = ledger(cards=1)
    by_agent.status.devices[0].uuid = "GPU-0"
    for made in (host(2), by_agent):
        meta = structs.replace(made.metadata, uid="anew")
        state.apply(Upserted(structs.replace(made, metadata=meta)))
    assert state.differences().to_describe == {}


def test_of_a_pool_the_newest_generation_counts() -> None:
    state = state_of(host(), device_class(), published("gpu-0", "gpu-1"))
    state.apply(Upserted(published("gpu-0", generation=2)))
    assert len(state.differences().to_create["n1"]) == 1


def test_a_device_with_a_taint_is_an_unhealthy_card() -> None:
    taints = [{"key": "broken", "effect": "NoSchedule"}]
    state = state_of(host(), device_class(), published("gpu-0", taints=taints))
    assert state.differences().to_create["n1"][0].health == "Unhealthy"


def test_a_node_offers_its_cards_as_the_class_of_their_driver_says() -> None:
    state = state_of(host(), ledger())
    assert offers(state) is BY_NODE
    state.apply(Upserted(published("gpu-0", "gpu-1")))
    assert offers(state) is BY_NODE
    state.apply(Upserted(device_class()))
    assert offers(state) is BY_CLAIM
    state.apply(Upserted(device_class(mapped="nvidia.com/gpu")))
    assert offers(state) is BY_CLAIM_OR_RESOURCE
    state.apply(Removed(DeviceClass, "uid-class", "", "cards"))
    assert offers(state) is BY_NODE


def test_class_that_is_made_anew_stays_when_the_end_of_the_old_one_is_reported() -> None:
    state = state_of(host(), ledger(), published("gpu-0", "gpu-1"), device_class())
    state.apply(Removed(DeviceClass, "uid-of-the-old-one", "", "cards"))
    assert offers(state) is BY_CLAIM


SHARED: dict[str, Any] = {"allowMultipleAllocations": True}


def test_a_node_whose_cards_are_all_shared_by_claims_offers_shares() -> None:
    state = state_of(host(), device_class(mapped="nvidia.com/gpu"), ledger())
    state.apply(Upserted(published("gpu-0", "gpu-1", **SHARED)))
    assert offers(state) is BY_SHARE
    assert [each.device for each in state.differences().to_describe["n1"]] == [
        f"{DRIVER}/n1/gpu-0",
        f"{DRIVER}/n1/gpu-1",
    ]


def test_cards_that_claims_share_are_in_the_order_in_which_kube_scheduler_looks() -> None:
    first, second = published("gpu-10", "gpu-9", **SHARED), published("gpu-0", **SHARED)
    second.metadata.uid, second.metadata.name = "uid-second-slice", "n1-9"
    state = state_of(host(), device_class(), ledger(), second, first)
    names = [each.device for each in state.differences().to_describe["n1"]]
    assert names == [f"{DRIVER}/n1/gpu-{ix}" for ix in (10, 9, 0)]


def test_card_keeps_its_index_as_long_as_it_is_published() -> None:
    state = state_of(host(), device_class(), ledger())
    for generation, names in enumerate((["a", "b", "c"], ["b", "x", "c"], ["z", "c", "x"]), 1):
        state.apply(Upserted(published(*names, generation=generation, **SHARED)))
        described(state)
    found = {each.device[-1]: each.index for each in state.gpu_nodes["n1"].status.devices}
    assert found == {"z": 0, "c": 2, "x": 3}


def test_cards_that_claims_share_do_not_count_beside_whole_ones() -> None:
    state = state_of(host(), device_class(), published("gpu-0", **SHARED), ledger())
    whole_cards = published("gpu-1")
    whole_cards.metadata.uid = "uid-second-slice"
    state.apply(Upserted(whole_cards))
    state.apply(Upserted(consumed("theirs", "gpu-0", 10, to="stranger")))
    assert [each.device for each in state.differences().to_describe["n1"]] == [f"{DRIVER}/n1/gpu-1"]
    assert (offers(state), free_cards(state, "n1")) == (BY_CLAIM, [1000, 1000])


# -- what claims hold ------------------------------------------------------------------------


def test_what_is_allocated_to_a_pod_without_a_row_is_held_of_the_node() -> None:
    state = state_of(host(), device_class(), published("gpu-0", "gpu-1"), ledger())
    state.apply(Upserted(allocated("other", "gpu-0", to="stranger")))
    assert free_cards(state, "n1") == [1000, 0]
    (hold,) = state.differences().foreign["n1"]
    assert (hold.name, hold.gpus) == ("stranger", 1)
    state.apply(Removed(ResourceClaim, "uid-other", "team-a", "other"))
    assert free_cards(state, "n1") == [1000, 1000]


def test_what_is_allocated_to_a_pod_with_a_row_is_held_once() -> None:
    ours = pod("a").needs(1000).bound("n1").build()
    held = ledger(row(ours, whole(0), "bound"))
    state = state_of(host(), device_class(), published("gpu-0", "gpu-1"), held, ours)
    state.apply(Upserted(allocated("a-claim", "gpu-1", to="a")))
    assert free_cards(state, "n1") == [0, 1000]
    state.apply(Upserted(allocated("a-claim", "gpu-0", "gpu-1", to="a")))
    assert free_cards(state, "n1") == [0, 0]


def test_a_place_stays_held_until_the_claim_of_its_pod_is_deallocated() -> None:
    ours = pod("a").needs(1000).bound("n1").build()
    held = ledger(row(ours, whole(0), "bound"))
    claim = allocated("a-claim", "gpu-0", to="a")
    state = state_of(host(), device_class(), published("gpu-0", "gpu-1"), held, ours, claim)
    state.apply(Removed(Pod, "uid-a", "team-a", "a"))
    state.apply(Upserted(gpu_node("n1", 2).version(2).build()))
    assert free_cards(state, "n1") == [1000, 0]
    state.apply(Upserted(msgspec.structs.replace(claim, status=type(claim.status)())))
    assert free_cards(state, "n1") == [1000, 1000]


def test_cards_of_a_pod_whose_row_is_lost_count_once_by_its_claim_or_its_binding() -> None:
    ours = pod("a").needs(1000).bound("n1").build()
    claim = allocated("a-claim", "gpu-0", to="a")
    state = state_of(host(), device_class(), published("gpu-0", "gpu-1"), ledger(), ours, claim)
    assert sum(free_cards(state, "n1")) == 1000
    state.apply(Upserted(msgspec.structs.replace(claim, status=type(claim.status)())))
    assert free_cards(state, "n1") == [0, 1000]


def test_instance_of_a_card_that_is_allocated_is_no_card_that_is_held() -> None:
    mig = published("mig-0", attributes={"a/type": {"string": "mig"}})
    cards = published("gpu-0", "gpu-1")
    cards.metadata.uid = "uid-second-slice"
    state = state_of(host(), device_class(), mig, cards, ledger())
    state.apply(Upserted(allocated("part", "mig-0", to="other")))
    assert free_cards(state, "n1") == [1000, 1000]


def test_access_of_an_administrator_holds_no_card() -> None:
    state = state_of(host(), device_class(), published("gpu-0", "gpu-1"), ledger())
    state.apply(Upserted(allocated("look", "gpu-0", to="monitor", adminAccess=True)))
    assert free_cards(state, "n1") == [1000, 1000]


def sharing(*rows: Any) -> ClusterState:
    """A node with two cards that claims share, as the controller has described it."""
    slices = published("gpu-0", "gpu-1", **SHARED)
    return described(state_of(host(), device_class(), slices, ledger(*rows)))


def test_share_that_is_allocated_without_a_row_is_held_of_its_card() -> None:
    state = sharing()
    for name, gib in (("first", 10), ("second", 20)):
        state.apply(Upserted(consumed(name, "gpu-1", gib, to=name)))
    assert free_cards(state, "n1") == [1000, 625]
    first, second = state.differences().foreign["n1"]
    assert (first.name, first.gpus, first.cards) == ("first", 0, [CardShare(1, 125, 10240)])
    assert (second.name, second.gpus, second.cards) == ("second", 0, [CardShare(1, 250, 20480)])
    nodes = state.snapshot(0).nodes.cards
    assert nodes.foreign_milli[nodes.ix["n1"]] == 375


def test_claim_that_holds_more_of_a_card_than_its_row_is_beyond_it() -> None:
    ours = pod("a").claims_mib(10240).bound("n1").build()
    state = sharing(row(ours, [CardShare(0, 125, 10240)], "bound"))
    state.apply(Upserted(ours))
    state.apply(Upserted(consumed("a-claim", "gpu-0", 10, to="a")))
    assert (free_cards(state, "n1"), state.foreign_pods()) == ([875, 1000], [])
    state.apply(Upserted(consumed("a-claim", "gpu-0", 20, to="a")))
    (beyond,) = state.foreign_pods()
    assert (beyond.facts.name, beyond.is_beyond_row) == ("a", True)
    assert free_cards(state, "n1") == [750, 1000]


def test_amounts_that_shared_cards_give_are_known_of_their_node() -> None:
    policy = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi", "max": "40Gi"}}
    capacity = {"memory": {"value": "80Gi", "requestPolicy": policy}}
    state = state_of(host(), device_class(), ledger())
    state.apply(Upserted(published("gpu-0", **SHARED | {"capacity": capacity})))
    nodes = state.snapshot(0).nodes
    assert nodes.share_steps[nodes.ix_of("n1") or 0] == {MemorySteps(2**30, 40 * 2**30, 2**30)}


# -- which pods get them ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("built", "delivery"),
    [
        (pod("a").needs(2000), "resource"),
        (pod("a").needs(500), "agent"),
        (pod("a").needs_mib(4096), "agent"),
        (pod("a").claims(2), "claim"),
        (pod("a").claims(1).needs(1000), "resource"),
        (pod("a").claims(1).needs(500), "agent"),
        (pod("a").claims(1).needs_mib(4096), "agent"),
        (pod("a").claims_mib(4096), "share"),
    ],
)
def test_pod_gets_its_cards_in_the_way_that_it_asks(built: Any, delivery: str) -> None:
    state = state_of(built.build())
    (workload,) = state.workloads().values()
    assert workload.pods[0].constraints.delivery == delivery


def test_pod_with_claims_for_cards_causes_evictions_as_others_do() -> None:
    (workload,) = state_of(pod("a").claims(1).build()).workloads().values()
    (other,) = state_of(pod("b").claims(1).needs(1000).build()).workloads().values()
    assert workload.doubt is None
    assert other.doubt is not None
    assert "resourceClaims" in other.doubt.detail


def test_instances_are_no_cards_in_whatever_slice_of_their_pool_they_are() -> None:
    mig = {"gpu.example.com/type": {"string": "mig"}}
    cards, instances = published("gpu-0", "gpu-1"), published("mig-0", attributes=mig)
    beside = structs.replace(instances.metadata, name="n1-instances", uid="uid-n1-instances")
    instances = structs.replace(instances, metadata=beside)
    held = allocated("theirs", "mig-0", "gpu-0")
    for slices in ((cards, instances), (instances, cards)):
        state = state_of(host(), device_class(), *slices, ledger(), held)
        assert sorted(free_cards(state, "n1")) == [0, 1000]
