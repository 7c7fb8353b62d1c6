"""Free resources of nodes, and whether nodes are used."""

from typing import Any, Literal

import pytest
from msgspec.structs import replace

from extender.api.events import Removed, Upserted
from extender.api.kinds import Device, GpuNodeStatus
from extender.api.objects import (
    ContainerStatus,
    Node,
    Pod,
    Resources,
)
from tests.support.builders import (
    gpu_node,
    node,
    part,
    pod,
    pool,
    project,
    row,
    whole,
)
from tests.unit.state.model import free_cards, host_of, is_ready, nodes_of, state_of


def test_a_row_takes_its_cards_even_while_its_pod_is_unknown() -> None:
    ledger = gpu_node("n1", 2).holds(row(pod("a").build(), part(0, 300))).build()
    assert free_cards(state_of(ledger), "n1") == [700, 1000]


@pytest.mark.parametrize(("health", "mib"), [("Healthy", 8_000), ("Unhealthy", 80_000)])
def test_a_node_with_cards_of_different_sizes_counts_by_the_smallest_healthy_one(
    health: Literal["Healthy", "Unhealthy"], mib: int
) -> None:
    devices = [
        Device(index=0, memory_mib=80_000),
        Device(index=1, memory_mib=8_000, health=health),
    ]
    ledger = replace(gpu_node("n1").build(), status=GpuNodeStatus(devices=devices))
    nodes = nodes_of(state_of(node("n1").build(), ledger))
    assert nodes.cards.card_mib[nodes.cards.ix["n1"]] == mib


@pytest.mark.parametrize("is_gpu_pod", [False, True])
def test_a_pod_bound_by_its_author_with_impossible_requests_takes_nothing(is_gpu_pod: bool) -> None:
    """kubelet refuses it, if there is one; until then the model must not break."""
    asked = pod("a").host("10P", "9E").scheduler("default-scheduler").bound("n1")
    if is_gpu_pod:
        asked.needs(1000).unledgered()
    alone = state_of(node("n1").build(), gpu_node("n1", 2).build())
    state = state_of(node("n1").build(), gpu_node("n1", 2).build(), asked.build())
    assert host_of(state, "n1")[:2] == host_of(alone, "n1")[:2]


@pytest.mark.parametrize("mib", [2**31, 2**43])
def test_a_card_of_any_size_fits_the_table(mib: int) -> None:
    ledger = replace(
        gpu_node("n1").build(), status=GpuNodeStatus(devices=[Device(index=0, memory_mib=mib)])
    )
    nodes = nodes_of(state_of(node("n1").build(), ledger))
    assert nodes.cards.card_mib[nodes.cards.ix["n1"]] == 2**31 - 1


def test_a_node_with_any_number_of_pod_slots_fits_the_table() -> None:
    many = node("n1").build()
    many.status.allocatable["pods"] = "5G"
    assert host_of(state_of(many, gpu_node("n1", 2).build()), "n1")[2] == 2**30


def test_a_row_keeps_its_cards_when_its_pod_is_gone_until_it_is_freed() -> None:
    held = pod("a").needs(300).build()
    state = state_of(held, gpu_node("n1", 1).holds(row(held, part(0, 300))).build())
    state.apply(Removed(Pod, "uid-a", "team-a", "a"))
    assert free_cards(state, "n1") == [700]
    state.apply(Upserted(gpu_node("n1", 1).version(2).build()))
    assert free_cards(state, "n1") == [1000]


def test_an_older_version_of_a_ledger_is_passed_over() -> None:
    state = state_of(gpu_node("n1", 1).version(10).holds(row(pod("a").build(), whole(0))).build())
    state.apply(Upserted(gpu_node("n1", 1).version(9).build()))
    assert free_cards(state, "n1") == [0]


@pytest.mark.parametrize(
    ("built", "ready"),
    [
        (node("n1"), True),
        (node("n1").ready("False"), False),
        (node("n1").ready("Unknown"), False),
        (node("n1").ready(None), False),
        (node("n1").cordoned(), False),
    ],
)
def test_a_node_is_ready_when_it_says_so_and_is_not_cordoned(built: Any, ready: bool) -> None:
    assert is_ready(state_of(gpu_node("n1", 1).build(), built.build()), "n1") is ready


@pytest.mark.parametrize(
    ("built", "ready"),
    [
        (node("n1").gpus(4).plugin(4, 4), True),
        (node("n1").gpus(4).plugin(4, 1), True),
        (node("n1").gpus(4).plugin(4, 0), False),
        (node("n1").gpus(4).plugin(0, 0), True),
        (node("n1").gpus(4).plugin(4, 0).instances("nvidia.com/mig-1g.5gb", 7), True),
    ],
)
def test_a_node_whose_device_plugin_offers_no_card_takes_no_pods(built: Any, ready: bool) -> None:
    state = state_of(gpu_node("n1", 4).build(), built.build())
    assert is_ready(state, "n1") is ready
    state.apply(Upserted(node("n1").gpus(4).plugin(4, 4).version(9).build()))
    assert is_ready(state, "n1")


def test_a_ledger_without_its_node_is_not_ready_and_comes_back() -> None:
    state = state_of(gpu_node("n1", 1).build(), node("n1").build())
    state.apply(Removed(Node, "uid-n1", "", "n1"))
    assert not is_ready(state, "n1")
    state.apply(Upserted(node("n1").uid("uid-again").build()))
    assert is_ready(state, "n1")


def test_a_late_removal_of_an_older_node_of_the_name_is_passed_over() -> None:
    state = state_of(gpu_node("n1", 1).build(), node("n1").uid("uid-new").build())
    state.apply(Removed(Node, "uid-old", "", "n1"))
    assert is_ready(state, "n1")


def test_only_taints_that_keep_pods_away_are_kept() -> None:
    built = node("n1").taint("a").taint("b", "NoExecute").taint("c", "PreferNoSchedule").build()
    nodes = nodes_of(state_of(gpu_node("n1", 1).build(), built))
    assert [taint.key for taint in nodes.taints[nodes.cards.ix["n1"]]] == ["a", "b"]


def test_a_node_without_a_ledger_is_not_in_the_table() -> None:
    assert nodes_of(state_of(node("n1").gpus(8).build())).ix_of("n1") is None


def test_a_node_changes_its_pool_with_labels_and_with_pools() -> None:
    state = state_of(gpu_node("n1", 1).build(), node("n1").labelled(gpu="h100").build())
    nodes = nodes_of(state)
    assert nodes.pool[nodes.cards.ix["n1"]] == "default"
    state.apply(Upserted(pool("h", gpu="h100").build()))
    nodes = nodes_of(state)
    assert nodes.pool[nodes.cards.ix["n1"]] == "h"


def test_pods_on_a_node_take_cpu_memory_and_slots() -> None:
    state = state_of(
        gpu_node("n1", 1).build(),
        node("n1").host("8", "16Gi", "10").build(),
        pod("web").direct().host("1500m", "1Gi").bound("n1").build(),
        pod("gpu").needs(500).host("2", "2Gi").bound("n1").build(),
        pod("waits").needs(500).host("2", "2Gi").build(),
    )
    assert host_of(state, "n1") == (4500, 13 * 1024, 8)


def test_a_reserved_pod_takes_its_nodes_cpu_before_it_is_bound() -> None:
    held = pod("a").needs(500).host("2", "2Gi").build()
    state = state_of(
        node("n1").host("8", "16Gi", "10").build(),
        gpu_node("n1", 1).holds(row(held, part(0, 500))).build(),
        held,
    )
    assert host_of(state, "n1") == (6000, 14 * 1024, 9)


def test_a_pod_that_ends_gives_cpu_back() -> None:
    web = pod("web").direct().host("1", "1Gi").bound("n1")
    state = state_of(gpu_node("n1", 1).build(), node("n1").host("8", "16Gi").build(), web.build())
    state.apply(Upserted(web.ended().build()))
    assert host_of(state, "n1") == (8000, 16 * 1024, 110)


PROFILE = "nvidia.com/mig-1g.10gb"


def test_instances_are_counted_and_the_cards_they_are_cut_from_are_not() -> None:
    state = state_of(node("n1").gpus(2).instances(PROFILE, 7).build())
    assert state.differences().to_create == {"n1": ()}
    state.apply(Upserted(gpu_node("n1").build()))
    nodes = state.snapshot(0).nodes
    assert nodes.free_counted[nodes.cards.ix["n1"]] == {PROFILE: 7}


def test_what_pods_hold_of_instances_is_not_free() -> None:
    state = state_of(node("n1").instances(PROFILE, 7).build(), gpu_node("n1").build())
    waiting = pod("a").instances(PROFILE, 2)
    state.apply(Upserted(waiting.build()))
    view = state.pod("uid-a")
    assert view is not None
    assert view.demand.counted == ((PROFILE, 2),)
    state.apply(Upserted(waiting.bound("n1").build()))
    nodes = state.snapshot(0).nodes
    assert nodes.free_counted[nodes.cards.ix["n1"]] == {PROFILE: 5}
    state.validate_state()


@pytest.mark.parametrize("gpus", [0, 1])
def test_a_node_counts_what_a_pod_asks_for_as_a_whole_and_what_it_still_holds(gpus: int) -> None:
    built = pod("a").needs(1000) if gpus else pod("a").direct()
    bound = built.host("1", "1Gi").bound("n1").build()
    bound.spec.resources = Resources(requests={"cpu": "4"})
    bound.status.allocated_resources = {"cpu": "6"}
    bound.status.container_statuses = [
        ContainerStatus(name="main", allocated_resources={"memory": "3Gi"})
    ]
    state = state_of(
        project("team-a").build(),
        node("n1").host("8", "8Gi").build(),
        gpu_node("n1", 1).build(),
        bound,
    )
    assert host_of(state, "n1")[:2] == (2000, 5 * 1024)
    view = state.pod("uid-a")
    # Its project is charged what the pod asks for: kubelet may say anything of its own pods.
    assert gpus == 0 or (view is not None and view.demand.cpu_milli == 4000)
