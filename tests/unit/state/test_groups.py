"""Pod groups beyond their minimum: sub-groups, topology, users, staleness."""

from typing import Any

import pytest
from msgspec import structs

from extender.api import names
from extender.api.events import Removed, Upserted
from extender.api.kinds import TopologyConstraint
from extender.api.objects import Pod
from extender.api.reasons import Reason
from extender.state.model import GroupView, TopologyRule
from tests.support.builders import (
    PodBuilder,
    gpu_node,
    kept_row,
    part,
    pod,
    pod_group,
    pool,
    row,
    topology,
    whole,
)
from tests.unit.state.model import only, team_state, view_of

TREE = topology("dc", "zone", "rack")


def member(name: str = "a", sub_group: str = "") -> PodBuilder:
    built = pod(name).needs(1000).gang("g")
    return built.sub_group(sub_group) if sub_group else built


# -- sub-groups ------------------------------------------------------------------------------


def test_a_group_that_states_no_minimum_needs_all_its_sub_groups() -> None:
    group = pod_group("g", 1).sub_group("leader").sub_group("workers", 4)
    workload = only(group.build(), member(sub_group="leader").build())
    assert workload.min_member == 5
    assert workload.tree == GroupView(
        name="",
        min_member=5,
        min_groups=2,
        children=(
            GroupView(name="leader", min_member=1),
            GroupView(name="workers", min_member=4),
        ),
    )
    assert [each.group for each in workload.pods] == ["leader"]


def test_a_tree_has_the_minimums_that_are_stated_at_every_level() -> None:
    group = pod_group("g", 3).sub_group("replica", 2, min_sub_group=1).sub_group("router", 0)
    group.sub_group("leader", parent="replica").sub_group("workers", 2, parent="replica")
    tree = only(group.build(), member(sub_group="leader").build()).tree
    assert tree is not None
    assert (tree.min_member, tree.min_groups) == (3, None)
    assert (tree.children[0].min_member, tree.children[0].min_groups) == (2, 1)
    assert [leaf.name for leaf in tree.children[0].children] == ["leader", "workers"]


def test_a_pod_names_its_sub_group_by_the_label_of_kai_too() -> None:
    group = pod_group("g", 1).sub_group("leader").sub_group("workers", 4).build()
    labelled = member().labels({"kai.scheduler/subgroup-name": "workers"}).build()
    assert only(group, labelled).pods[0].group == "workers"


def test_sub_groups_that_surround_one_another_are_a_problem() -> None:
    group = pod_group("g", 2).sub_group("x", parent="y").sub_group("y", parent="x")
    problem = only(group.build(), member().build()).problem
    assert problem is not None
    assert problem.reason is Reason.INVALID_REQUEST
    assert "x, y" in problem.detail


def test_a_pod_of_a_sub_group_that_holds_no_pods_is_a_problem() -> None:
    group = pod_group("g", 2).sub_group("workers", 2)
    problem = only(group.build(), member(sub_group="leader").build()).problem
    assert problem is not None
    assert "leader" in problem.detail


# -- nearness --------------------------------------------------------------------------------


def test_nearness_that_the_group_asks_for_is_its_root() -> None:
    group = pod_group("g", 2).near("rack", topology="dc").build()
    tree = only(TREE, group, member().build()).tree
    assert tree == GroupView(name="", min_member=2, topology=TopologyRule("dc", "rack"))


def test_a_topology_need_not_be_named_where_only_one_has_the_level() -> None:
    other = topology("power", "row")
    group = pod_group("g", 2).near(preferred="rack").build()
    tree = only(TREE, other, group, member().build()).tree
    assert tree is not None
    assert tree.topology == TopologyRule("dc", None, "rack")


def test_sub_groups_ask_for_nearness_of_their_own() -> None:
    near = TopologyConstraint(required_topology_level="rack")
    group = pod_group("g", 1).sub_group("workers", 2, topology_constraint=near).build()
    pods = [member("w", sub_group="workers").build(), member("driver").build()]
    tree = only(TREE, group, *pods).tree
    assert tree is not None
    assert tree.topology is None
    assert tree.children[0].topology == TopologyRule("dc", "rack")


def test_a_group_with_all_pods_in_one_sub_group_is_that_sub_group() -> None:
    near = TopologyConstraint(required_topology_level="rack")
    group = pod_group("g", 1).sub_group("workers", 2, topology_constraint=near).build()
    view = only(TREE, group, member(sub_group="workers").build())
    rule = TopologyRule("dc", "rack")
    assert view.tree == GroupView(name="workers", min_member=2, topology=rule)
    assert view.min_member == 2


@pytest.mark.parametrize(
    "notes",
    [
        {"ballast.dev/topology-required-level": "rack"},
        {"kai.scheduler/topology": "dc", "kai.scheduler/topology-required-placement": "rack"},
        {"kueue.x-k8s.io/podset-required-topology": "rack"},
    ],
    ids=["ours", "kai", "kueue"],
)
def test_pods_ask_for_nearness_without_a_pod_group(notes: dict[str, str]) -> None:
    pods = [member(name).notes(notes).build() for name in "ab"]
    tree = only(TREE, *pods).tree
    assert tree is not None
    assert tree.topology == TopologyRule("dc", "rack")


def test_a_level_of_two_topologies_needs_the_name_of_one() -> None:
    other = topology("power", "row", "rack")
    state = team_state(TREE, other, pod_group("g", 2).near("rack").build(), member().build())
    problem = view_of(state).problem
    assert problem is not None
    assert problem.reason is Reason.UNKNOWN_TOPOLOGY
    assert "dc, power have the level rack: name one of them" in problem.detail


@pytest.mark.parametrize(("level", "name"), [("rack", "nowhere"), ("row", "dc"), ("row", "")])
def test_a_level_that_does_not_exist_is_a_problem_until_it_does(level: str, name: str) -> None:
    group = pod_group("g", 2).near(level, topology=name).build()
    state = team_state(TREE, group, member().build())
    problem = view_of(state).problem
    assert problem is not None
    assert problem.reason is Reason.UNKNOWN_TOPOLOGY
    state.apply(Upserted(topology(name or "other", "zone", level)))
    assert view_of(state).problem is None


# -- users and labels ------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["ballast.dev/user", "yunikorn.apache.org/username"])
def test_a_workload_is_its_users(key: str) -> None:
    workload = only(member().labels({key: "ann"}).build())
    assert workload.user == "ann"


def test_pods_of_one_group_that_name_two_users_are_a_problem() -> None:
    pods = member("a").user("ann").build(), member("b").user("bob").build()
    problem = only(*pods).problem
    assert problem is not None
    assert "ann, bob" in problem.detail


def test_pods_carry_the_labels_that_some_affinity_asks_for_and_no_others() -> None:
    plain = pod("a").needs(500).labelled(app="db", tier="back").build()
    state = team_state(plain)
    assert view_of(state).pods[0].labels == ()
    asking = pod("b").needs(500).apart("kubernetes.io/hostname", app="db").build()
    state.apply(Upserted(asking))
    assert {p.name: p.labels for w in state.workloads().values() for p in w.pods} == {
        "a": (("app", "db"),),
        "b": (),
    }
    state.validate_state()
    state.apply(Removed(Pod, "uid-b", "team-a", "b"))
    assert view_of(state).pods[0].labels == ()


# -- stale gangs -----------------------------------------------------------------------------


def running(*names: str) -> list[Any]:
    """Bound members of `g`, each on a card of n1."""
    pods = [member(name).bound("n1").build() for name in names]
    rows = [row(each, whole(ix), "bound") for ix, each in enumerate(pods)]
    return [gpu_node("n1", 4).holds(*rows).build(), *pods]


def test_a_gang_that_lost_a_member_is_stale_since_it_was_first_seen_so() -> None:
    state = team_state(pod_group("g", 2).build(), *running("a", "b"))
    assert view_of(state, 100).stale_since is None
    state.apply(Removed(Pod, "uid-b", "team-a", "b"))
    assert view_of(state, 110).stale_since == 110
    assert view_of(state, 120).stale_since == 110
    assert view_of(state, 120).stale_grace_s == 60


def test_a_gang_that_is_whole_again_is_not_stale() -> None:
    state = team_state(pod_group("g", 2).build(), *running("a"))
    assert view_of(state, 100).stale_since == 100
    for obj in running("a", "b"):
        state.apply(Upserted(obj))
    assert view_of(state, 110).stale_since is None


def test_a_gang_of_which_a_pod_has_succeeded_is_on_its_way_to_its_end() -> None:
    state = team_state(pod_group("g", 2).build(), *running("a", "b"))
    state.apply(Upserted(member("b").bound("n1").ended().build()))
    assert view_of(state, 100).stale_since is None
    state.apply(Removed(Pod, "uid-b", "team-a", "b"))
    assert view_of(state, 110).stale_since is None


def test_a_gang_is_not_stale_while_a_pod_of_it_is_moved() -> None:
    pods = [member("a").bound("n1").build(), member("b").bound("n1").terminating().build()]
    rows = [row(each, whole(ix), "bound") for ix, each in enumerate(pods)]
    first, group = gpu_node("n1", 2).holds(*rows).build(), pod_group("g", 2).build()
    kept = gpu_node("n2", 1).holds(kept_row(pods[1], whole(0))).build()
    assert view_of(team_state(group, first, kept, *pods), 100).stale_since is None
    assert view_of(team_state(group, first, *pods), 100).stale_since == 100


def test_a_gang_of_which_a_pod_has_failed_is_stale() -> None:
    state = team_state(pod_group("g", 2).build(), *running("a", "b"))
    state.apply(Upserted(member("b").bound("n1").ended("Failed").build()))
    assert view_of(state, 100).stale_since == 100


def test_a_later_leader_goes_by_what_an_earlier_one_has_told() -> None:
    told = pod_group("g", 2).told_stale("1970-01-01T00:01:30Z").build()
    assert view_of(team_state(told, *running("a")), 100).stale_since == 90


def test_an_earlier_leader_whose_clock_was_ahead_gives_no_gang_more_time() -> None:
    told = pod_group("g", 2).told_stale("1970-01-01T01:00:00Z").build()
    assert view_of(team_state(told, *running("a")), 100).stale_since == 100


def test_a_gang_that_waits_or_is_half_reserved_holds_what_it_must() -> None:
    waiting = member("a").build()
    state = team_state(pod_group("g", 2).build(), waiting)
    assert view_of(state, 100).stale_since is None
    held = row(waiting, part(0, 500), "nominated")
    state.apply(Upserted(gpu_node("n1", 1).holds(held).build()))
    assert view_of(state, 100).stale_since is None


def test_a_group_may_be_stale_for_ever_or_wait_before_it_evicts() -> None:
    group = pod_group("g", 2).delays(preemption_s=300, staleness_s=-1).build()
    workload = only(group, *running("a"), member("b").created(70).build())
    assert (workload.stale_grace_s, workload.preemption_delay_s) == (None, 300)
    assert workload.waits_since == 70


def test_one_pod_with_preemption_policy_never_is_enough_for_its_group() -> None:
    for policy, expected in (("Never", True), ("PreemptLowerPriority", False)):
        second = member("b").preemption_policy(policy).build()
        state = team_state(pod_group("g", 2).build(), member("a").build(), second)
        assert view_of(state).never_preempts is expected


# -- what a group states ---------------------------------------------------------------------


def test_what_a_group_states_precedes_what_its_pods_state() -> None:
    notes = {
        names.ANNOTATION_EXPECTED_RUN: "60",
        names.ANNOTATION_WEIGHT: "2",
        names.ANNOTATION_NODE_POOLS: "y",
        names.ANNOTATION_TOPOLOGY_REQUIRED: "zone",
    }
    pools = pool("x", a="1").build(), pool("y", a="2").build()
    group = pod_group("g", 1).near("rack").pools("x").build()
    stated = structs.replace(group.spec, expected_run_seconds=90, weight=3, max_concurrent_pods=5)
    rack, zone = TopologyRule("dc", "rack"), TopologyRule("dc", "zone")
    for built, found in (
        (pod_group("g", 1).build(), (60, 2, ("y",), zone, None)),
        (structs.replace(group, spec=stated), (90, 3, ("x",), rack, 5)),
    ):
        workload = only(TREE, *pools, built, member().notes(notes).build())
        assert workload.problem is None
        assert workload.tree is not None
        assert found == (
            workload.expected_run_s,
            workload.weight,
            workload.pools,
            workload.tree.topology,
            workload.max_concurrent_pods,
        )


# -- sub-groups that pods state --------------------------------------------------------------


def stating(name: str, sub_group: str, said: str = "driver=1,workers=2") -> PodBuilder:
    return member(name, sub_group).notes({"ballast.dev/sub-groups": said})


def test_sub_groups_that_pods_state_are_the_tree() -> None:
    workload = only(stating("d", "driver").build(), member("w", "workers").build())
    assert workload.tree == GroupView(
        name="",
        min_member=3,
        min_groups=2,
        children=(
            GroupView(name="driver", min_member=1),
            GroupView(name="workers", min_member=2),
        ),
    )
    assert workload.min_member == 3


def test_min_member_above_the_sum_of_sub_groups_counts_too() -> None:
    pods = [stating("d", "driver").notes({"ballast.dev/min-member": "5"}).build()]
    assert only(*pods).min_member == 5


def test_sub_groups_of_the_youngest_pod_count() -> None:
    old = stating("w", "workers").created(10).build()
    young = stating("d", "driver", "driver=1,workers=1").created(20).build()
    assert only(old, young).min_member == 2


def test_sub_groups_of_a_pod_group_come_first() -> None:
    group = pod_group("g", 1).sub_group("workers", 4).build()
    assert only(group, stating("w", "workers").build()).min_member == 4


def test_a_pod_group_without_sub_groups_leaves_them_to_its_pods() -> None:
    tree = only(pod_group("g", 3).build(), stating("d", "driver").build()).tree
    assert tree is not None
    assert [leaf.name for leaf in tree.children] == ["driver", "workers"]


def test_a_pod_group_that_asks_for_fewer_pods_than_sub_groups_is_taken_at_its_word() -> None:
    workload = only(pod_group("g", 2).build(), stating("d", "driver").build())
    assert (workload.min_member, workload.tree) == (2, None)


def test_malformed_sub_groups_are_a_problem() -> None:
    problem = only(stating("d", "driver", "driver").build()).problem
    assert problem is not None
    assert problem.reason is Reason.INVALID_REQUEST
    assert "driver=1,workers=8" in problem.detail


def test_sub_groups_without_a_group_mean_nothing() -> None:
    lone = pod("a").needs(1000).notes({"ballast.dev/sub-groups": "driver=1,workers=8"}).build()
    workload = only(lone)
    assert (workload.min_member, workload.tree) == (1, None)
