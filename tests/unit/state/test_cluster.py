"""Nodes, rows and what the controller has to mend."""

from typing import Any

import pytest

from extender.api.events import Event, Removed, Synced, Upserted
from extender.api.kinds import Device, GpuNode
from extender.api.objects import (
    BudgetSpec,
    BudgetStatus,
    ContainerStatus,
    LabelSelector,
    Node,
    ObjectMeta,
    Pod,
    PodDisruptionBudget,
    Resources,
)
from extender.state.cluster import ClusterState
from extender.state.nodes import NodeTable
from extender.state.pods.constraints import MAX_BYTES
from tests.support.builders import (
    CARD_MIB,
    department,
    gpu_node,
    kept_row,
    node,
    part,
    pod,
    pod_group,
    pool,
    project,
    row,
    topology,
    whole,
)


def state_of(*objects: Any) -> ClusterState:
    state = ClusterState()
    for obj in objects:
        state.apply(Upserted(obj))
    state.validate_state()
    return state


def nodes_of(state: ClusterState) -> NodeTable:
    state.validate_state()
    return state.snapshot(0).nodes


def free_cards(state: ClusterState, name: str) -> list[int]:
    nodes = nodes_of(state)
    return list(nodes.cards.free_of(nodes.cards.ix[name]))


def host_of(state: ClusterState, name: str) -> tuple[int, int, int]:
    nodes = nodes_of(state)
    ix = nodes.cards.ix[name]
    return nodes.free_cpu_milli[ix], nodes.free_memory_mib[ix], nodes.free_pods[ix]


def is_ready(state: ClusterState, name: str) -> bool:
    nodes = nodes_of(state)
    return bool(nodes.is_ready[nodes.cards.ix[name]])


# -- nodes -----------------------------------------------------------------------------------


def test_a_row_takes_its_cards_even_while_its_pod_is_unknown() -> None:
    ledger = gpu_node("n1", 2).holds(row(pod("a").build(), part(0, 300))).build()
    assert free_cards(state_of(ledger), "n1") == [700, 1000]


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


def test_a_snapshot_is_not_changed_by_what_happens_later() -> None:
    state = state_of(gpu_node("n1", 1).build(), node("n1").build())
    before = state.snapshot(0)
    held = pod("a").needs(500).build()
    for obj in (held, gpu_node("n1", 1).version(2).holds(row(held, whole(0))).build()):
        state.apply(Upserted(obj))
    state.apply(Removed(Node, "uid-n1", "", "n1"))
    state.snapshot(1)
    ix = before.nodes.cards.ix["n1"]
    assert list(before.nodes.cards.free_of(ix)) == [1000]
    assert before.nodes.is_ready[ix]
    assert before.workloads == {}


def test_views_that_did_not_change_are_shared_by_snapshots() -> None:
    state = state_of(pod("a").needs(500).build(), pod("b").needs(500).build())
    before = state.snapshot(0).workloads
    state.apply(Upserted(pod("b").needs(500).version(2).terminating().build()))
    after = state.snapshot(1).workloads
    assert after["team-a/a"] is before["team-a/a"]
    assert after["team-a/b"].pods[0].is_terminating


def test_an_event_of_a_foreign_kind_is_a_bug_that_shows() -> None:
    with pytest.raises(KeyError):
        ClusterState().apply(Removed(Device, "", "", ""))


# -- rows and pods that do not match ---------------------------------------------------------


def strays(state: ClusterState) -> list[tuple[str, str, str, bool]]:
    state.validate_state()
    return [(s.node, s.row.uid, s.cause, s.is_confirmed) for s in state.rows_to_free()]


def test_a_row_of_an_unseen_pod_is_a_candidate_only_after_all_pods_were_delivered() -> None:
    state = state_of(gpu_node("n1", 1).holds(row(pod("a").build(), whole(0))).build())
    assert strays(state) == []
    state.apply(Synced(Pod))
    assert strays(state) == [("n1", "uid-a", "absent", False)]


def test_a_row_of_a_removed_pod_is_confirmed_where_it_was_there_before() -> None:
    held = pod("a").needs(500).build()
    ledger = gpu_node("n1", 1).holds(row(held, whole(0))).build()
    gone = Removed(Pod, "uid-a", "team-a", "a")
    orders: list[list[Event]] = [
        [Upserted(held), Upserted(ledger), gone],
        [Upserted(ledger), Upserted(held), gone],
    ]
    for events in orders:
        state = ClusterState()
        for event in events:
            state.apply(event)
        assert strays(state) == [("n1", "uid-a", "ended", True)]


def test_a_row_that_comes_after_its_pod_is_gone_needs_a_live_read() -> None:
    """A store that was restored shows rows of pods that were gone, and that exist again."""
    held = pod("a").needs(500).bound("n1").build()
    booked = row(held, part(0, 500), "bound")
    state = state_of(held, gpu_node("n1", 1).holds(booked).version(1).build())
    state.apply(Synced(Pod))
    state.apply(Removed(Pod, "uid-a", "team-a", "a", "7"))
    state.apply(Upserted(gpu_node("n1", 1).version(8).build()))
    assert strays(state) == []
    state.apply(Upserted(gpu_node("n1", 1).holds(booked).version(9).build()))
    assert strays(state) == [("n1", "uid-a", "absent", False)]


def test_a_pod_that_was_gone_exists_again_in_a_later_version() -> None:
    held = pod("a").needs(500).bound("n1")
    ledger = gpu_node("n1", 1).holds(row(held.build(), part(0, 500), "bound")).build()
    state = state_of(ledger, held.version(5).build())
    state.apply(Removed(Pod, "uid-a", "team-a", "a", "7"))
    state.apply(Upserted(held.version(6).build()))
    assert strays(state) == [("n1", "uid-a", "ended", True)]
    state.apply(Upserted(held.version(8).build()))
    assert strays(state) == []
    assert state.pod("uid-a") is not None


def test_a_pod_that_ended_and_runs_again_is_believed_in_a_later_version() -> None:
    held = pod("a").needs(500).bound("n1")
    before, after = held.version(4).build(), held.version(7).build()
    state = state_of(gpu_node("n1", 1).build())
    for version in (5, 6):
        state.apply(Upserted(held.ended("Failed").version(version).build()))
    state.apply(Upserted(before))
    assert state.pod("uid-a") is None
    state.apply(Upserted(after))
    assert state.pod("uid-a") is not None


def test_a_terminating_pod_keeps_its_row_and_a_terminal_one_does_not() -> None:
    held = pod("a").needs(500).bound("n1")
    ledger = gpu_node("n1", 1).holds(row(held.build(), whole(0), "bound")).build()
    state = state_of(ledger, held.terminating().build())
    assert strays(state) == []
    state.apply(Upserted(held.ended("Failed").build()))
    assert strays(state) == [("n1", "uid-a", "ended", True)]


def test_a_row_whose_pod_is_gone_holds_its_cards_and_is_told_to_be_an_orphan() -> None:
    """Else a promise of that place would look as if no pod were about to leave it."""
    held = pod("a").needs(500).bound("n1").build()
    state = state_of(held, gpu_node("n1", 1).holds(row(held, part(0, 500), "bound")).build())
    assert state.snapshot(0).orphans == ()
    state.apply(Removed(Pod, "uid-a", "team-a", "a"))
    assert state.snapshot(0).orphans == (("n1", tuple(part(0, 500))),)
    assert free_cards(state, "n1") == [500]


def test_a_row_on_another_node_than_the_pods_is_stray() -> None:
    held = pod("a").needs(500).bound("n2").build()
    state = state_of(
        held,
        gpu_node("n1", 1).holds(row(held, whole(0))).build(),
        gpu_node("n2", 1).holds(row(held, whole(0), "bound")).build(),
    )
    assert strays(state) == [("n1", "uid-a", "elsewhere", True)]


def test_of_two_rows_of_an_unbound_pod_the_newer_plan_counts_and_the_other_needs_the_fence() -> (
    None
):
    held = pod("a").needs(500).build()
    state = state_of(
        held,
        gpu_node("n1", 1).holds(row(held, whole(0), epoch=4)).build(),
        gpu_node("n2", 1).holds(row(held, whole(0), epoch=3)).build(),
    )
    assert strays(state) == [("n2", "uid-a", "superseded", False)]
    view = state.pod("uid-a")
    assert view is not None
    assert (view.node, view.epoch) == ("n1", 4)


def test_a_bound_pod_with_a_reserved_row_is_to_be_marked() -> None:
    held = pod("a").needs(500).bound("n1").build()
    state = state_of(held, gpu_node("n1", 1).holds(row(held, part(0, 500))).build())
    assert state.rows_to_mark_bound() == {"n1": ["uid-a"]}
    marked = gpu_node("n1", 1).version(2).holds(row(held, part(0, 500), "bound")).build()
    state.apply(Upserted(marked))
    assert state.rows_to_mark_bound() == {}


def test_a_bound_pod_without_a_row_is_told_with_the_cards_of_its_binding() -> None:
    held = pod("a").needs(500).bound("n1").notes({"ballast.dev/cards": "3:500:8000"}).build()
    (lost,) = state_of(held, gpu_node("n1", 4).build()).lost_rows()
    assert (lost.pod.uid, lost.cards) == ("uid-a", tuple(part(3, 500)))


def test_a_released_pod_whose_row_is_gone_is_told() -> None:
    released = pod("a").needs(500).released("n1").build()
    state = state_of(released)
    assert [p.uid for p in state.released_without_row()] == ["uid-a"]
    state.apply(Upserted(gpu_node("n1", 1).holds(row(released, part(0, 500))).build()))
    assert state.released_without_row() == []


# -- nodes and ledgers that do not match -----------------------------------------------------


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


# -- places kept for moved pods ---------------------------------------------------------------


def moved(**facts: Any) -> ClusterState:
    """Pod `a` on n1, with a place kept on n2; facts: is_leaving."""
    built = pod("a").needs(500).host("2", "1Gi").bound("n1")
    held = (built.terminating() if facts.get("is_leaving", True) else built).build()
    return state_of(
        project("team-a").build(),
        held,
        node("n2").host("8", "8Gi").build(),
        gpu_node("n1", 1).holds(row(held, part(0, 500), "bound")).build(),
        gpu_node("n2", 1).holds(kept_row(held, part(0, 500), cpu_milli=2000)).build(),
    )


def test_a_moved_pod_holds_its_place_and_its_successors() -> None:
    state = moved()
    view = state.pod("uid-a")
    assert view is not None
    assert (view.node, view.next_node, list(view.next_cards)) == ("n1", "n2", part(0, 500))
    assert strays(state) == []
    assert [(kept.node, kept.is_gone) for kept in state.kept_places()] == [("n2", False)]
    state.validate_state()


def test_a_place_kept_for_a_successor_is_free_for_nobody_else() -> None:
    nodes = moved().snapshot(0).nodes
    ix = nodes.cards.ix["n2"]
    assert list(nodes.cards.free_of(ix)) == [500]
    assert (nodes.free_cpu_milli[ix], nodes.free_pods[ix]) == (6000, 109)


def test_a_pod_that_stays_after_all_needs_no_second_place() -> None:
    state = moved(is_leaving=False)
    assert strays(state) == [("n2", "uid-a", "elsewhere", True)]
    assert state.kept_places() == []


def test_a_place_outlives_its_pod_until_somebody_decides() -> None:
    state = moved()
    state.apply(Removed(Pod, "uid-a", "team-a", "a"))
    assert strays(state) == [("n1", "uid-a", "ended", True)]
    assert [(kept.node, kept.is_gone) for kept in state.kept_places()] == [("n2", True)]
    state.validate_state()


@pytest.mark.parametrize("is_gone", [False, True])
def test_of_two_places_that_two_leaders_kept_the_later_plans_stays(*, is_gone: bool) -> None:
    state = moved()
    held = pod("a").needs(500).build()
    later = kept_row(held, part(0, 500), cpu_milli=2000, epoch=2)
    state.apply(Upserted(gpu_node("n3", 1).holds(later).build()))
    if is_gone:
        state.apply(Removed(Pod, "uid-a", "team-a", "a"))
    assert ("n2", "uid-a", "elsewhere" if not is_gone else "superseded", True) in strays(state)
    assert [kept.node for kept in state.kept_places()] == ["n3"]
    state.validate_state()


def test_the_next_pod_of_the_same_owner_that_asks_for_the_same_may_take_the_place() -> None:
    state = moved()
    (kept,) = state.kept_places()
    assert kept.row.move is not None
    alike = {"b": "uid-job", "c": "uid-job", "d": "uid-other"}
    for number, (name, owner) in enumerate(alike.items()):
        built = pod(name).needs(500).host("2", "0").made_by(owner).created(50 - number)
        state.apply(Upserted(built.build()))
    state.apply(Upserted(pod("e").needs(250).host("2", "0").build()))
    assert [heir.name for heir in state.successors(kept.row)] == ["c", "b"]


# -- instances that cards are cut into -------------------------------------------------------

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


# -- figures of the pod as a whole, and resizes -----------------------------------------------


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


# -- what a tenant writes ------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["labels", "node selector, affinity and tolerations"])
def test_a_pod_with_more_than_is_kept_of_one_is_not_planned_and_holds_its_place(what: str) -> None:
    texts = {f"x/{number}": "v" * 60 for number in range(MAX_BYTES // 60)}
    built = pod("a").needs(500).labels(texts) if what == "labels" else pod("a").needs(500)
    if what != "labels":
        built.on_nodes(**texts)
    state = state_of(gpu_node("n1", 1).build(), built.build())
    (workload,) = state.workloads().values()
    assert workload.problem is not None
    assert f"its {what} have more than {MAX_BYTES} bytes" in workload.problem.detail
    held = built.bound("n1").build()
    state = state_of(gpu_node("n1", 1).holds(row(held, part(0, 500), "bound")).build(), held)
    assert free_cards(state, "n1") == [500]
    assert strays(state) == []


# -- whether a decision would read something else ---------------------------------------------


DISRUPTIONS = PodDisruptionBudget(
    metadata=ObjectMeta(name="b", namespace="team-a", uid="uid-b"),
    spec=BudgetSpec(selector=LabelSelector()),
    status=BudgetStatus(disruptions_allowed=1),
)


def scene() -> tuple[Any, ...]:
    held = pod("held").needs(1000).gang("held").bound("n1").build()
    return (
        project("team-a").build(),
        pool("default").build(),
        node("n1").gpus(1).build(),
        node("without-gpus").build(),
        gpu_node("n1", 1).holds(row(held, whole(0), "bound")).build(),
        held,
        pod("waits").needs(1000).build(),
        pod("foreign").needs(1000).bound("n1").unledgered().build(),
    )


@pytest.mark.parametrize(
    "same",
    [
        pod("waits").needs(1000).version(9).told("NoQuota").build(),
        pod("waits").needs(1000).version(9).notes({"a-tool/seen": "1"}).build(),
        node("n1").gpus(1).version(9).build(),
        project("team-a").version(9).build(),
        pod("of-others").direct().host("1", "1Gi").build(),
        pod("of-others").host("1", "1Gi").bound("without-gpus").build(),
        node("without-gpus").cordoned().version(9).build(),
        pod("foreign").needs(1000).bound("n1").unledgered().version(9).build(),
    ],
)
def test_what_no_decision_reads_leaves_the_version_as_it_is(same: Any) -> None:
    state = state_of(*scene())
    before = state.version()
    state.apply(Upserted(same))
    assert state.version() == before


@pytest.mark.parametrize(
    "change",
    [
        Upserted(pod("comes").needs(1000).build()),
        Upserted(pod("waits").needs(500).version(9).build()),
        Upserted(pod("held").needs(1000).gang("held").bound("n1").terminating().version(9).build()),
        Removed(Pod, "uid-held", "team-a", "held"),
        Upserted(pod("of-others").host("1", "1Gi").bound("n1").build()),
        Upserted(node("n1").gpus(1).cordoned().version(9).build()),
        Upserted(node("without-ledger").gpus(1).build()),
        Upserted(gpu_node("n1", 2).version(9).build()),
        Upserted(project("team-a").quota(4).version(9).build()),
        Upserted(pool("default").spread().build()),
        Upserted(pool("default").without_weights().build()),
        Upserted(department("science").quota(1).build()),
        Upserted(topology("dc", "zone")),
        Upserted(pod_group("held", 2).of("team-a").build()),
        Upserted(DISRUPTIONS),
    ],
)
def test_what_a_decision_reads_changes_the_version(change: Event) -> None:
    state = state_of(*scene())
    before = state.version()
    state.apply(change)
    assert state.version() != before


def test_a_pod_that_is_about_to_be_evicted_changes_the_version() -> None:
    state = state_of(*scene())
    before = state.version()
    state.expect_leaving(["uid-held"])
    leaving = state.version()
    state.forget_leaving("uid-held")
    assert before != leaving != state.version()
