"""The snapshot of a scenario."""

from typing import Any

import pytest

from extender.policy.decide import decide
from extender.scenario.snapshot import settings_of, take_snapshot
from extender.scenario.world import NOW_S
from extender.state.model import (
    ANYWHERE,
    CPU,
    GPU,
    UNLIMITED,
    Figures,
    GroupView,
    PoolQuota,
    WorkloadView,
)
from extender.state.snapshot import Snapshot
from tests.unit.scenario.written import case, job, node, queue, world

POOLS: list[dict[str, Any]] = [
    {"name": "a100", "match": {"pool": "a100"}},
    {"name": "h100", "match": {"pool": "h100"}, "preemption": False},
]


def seen(**more: Any) -> Snapshot:
    return take_snapshot(world(**more))


def workload(**more: Any) -> WorkloadView:
    return seen(jobs=[job(**more)]).workloads["default/j"]


def quota(written: dict[str, Any], pool: str = "default", **more: Any) -> PoolQuota:
    return seen(queues=[written], **more).queues[written["name"]].pools[pool]


def test_running_tasks_are_taken_from_the_table() -> None:
    table = seen(jobs=[job(gpu=2, cpu="4", on="n0")], nodes=[node(gpus=4, cpu="10")]).nodes
    assert list(table.cards.free_of(0)) == [0, 0, 1000, 1000]
    assert (table.free_cpu_milli[0], table.free_pods[0]) == (6000, 109)
    assert table.cpu_milli[0] == 10_000


def test_table_is_a_new_one_each_time() -> None:
    made = world(jobs=[job(on="n0")])
    take_snapshot(made).nodes.cards.card_free[0] = -5
    assert take_snapshot(made).nodes.cards.card_free[0] == 0


def test_states_of_pods() -> None:
    states = ("pending", "running", "nominated", "evicted")
    made = seen(jobs=[job(s, on="" if s == "pending" else "n0", state=s) for s in states])
    pods = {view.name: view.pods[0] for view in made.workloads.values()}
    assert [pods[s].state for s in states] == ["gated", "bound", "nominated", "bound"]
    assert [pods[s].is_terminating for s in states] == [False, False, False, True]
    assert [pods[s].is_gated for s in states] == [True, False, True, False]


def test_run_time_and_waiting_time_are_measured_back_from_now() -> None:
    view = workload(on="n0", runningFor=90, age=600, preemptionDelay=30)
    assert view.pods[0].started_at == NOW_S - 90
    assert view.waits_since == NOW_S - 600
    assert view.preemption_delay_s == 30


def test_node_has_its_name_as_a_label_its_taints_and_no_room_when_cordoned() -> None:
    taint = {"key": "k", "value": "v", "effect": "NoExecute"}
    table = seen(nodes=[node(labels={"rack": "r"}, taints=[taint], unschedulable=True)]).nodes
    assert table.labels[0] == {"rack": "r", "kubernetes.io/hostname": "n0"}
    assert (table.taints[0][0].key, table.taints[0][0].effect) == ("k", "NoExecute")
    assert not table.is_ready[0]


def test_node_cut_into_instances_has_those_and_no_whole_cards() -> None:
    name = "nvidia.com/mig-1g.5gb"
    mig = {"strategy": "mixed", "instances": {name: 3}}
    made = seen(nodes=[node(gpus=1, mig=mig)], jobs=[job(mig={name: 2}, on="n0")])
    assert made.nodes.cards.n_cards[0] == 0
    assert made.nodes.free_counted[0] == {name: 1}
    assert made.workloads["default/j"].pods[0].demand.counted == ((name, 2),)


def test_nodes_belong_to_the_first_pool_that_matches() -> None:
    nodes = [node("n0", labels={"pool": "a100"}), node("n1", labels={"pool": "h100"}), node("n2")]
    made = seen(nodes=nodes, nodePools=POOLS)
    assert made.nodes.pool == ["a100", "h100", ""]
    assert [pool.has_preemption for pool in made.pools.values()] == [True, False]


def test_pools_have_the_settings_where_they_say_nothing() -> None:
    settings = {"policy": "priority", "placement": {"gpu": "spread"}, "jobOrder": "strict-fifo"}
    view = seen(settings=settings).pools["default"]
    assert (view.policy, view.gpu_placement, view.cpu_placement, view.job_order) == (
        "priority",
        "spread",
        "binpack",
        "strict-fifo",
    )


def test_list_of_pools_is_the_jobs_the_nearest_queues_or_all() -> None:
    queues = [queue("d", nodePools=["h100", "a100"]), queue("a", parent="d"), queue("b")]
    jobs = [job("own", "a", nodePools=["a100"]), job("inherited", "a"), job("all", "b")]
    made = seen(nodePools=POOLS, queues=queues, jobs=jobs).workloads
    assert made["default/own"].pools == ("a100",)
    assert made["default/inherited"].pools == ("h100", "a100")
    assert made["default/all"].pools == ("a100", "h100")


def test_defaults_of_a_queue() -> None:
    figures = quota({"name": "a"})
    assert figures.gpu == Figures(quota=0, limit=UNLIMITED, weight=1)
    assert figures.cpu == figures.memory == Figures(quota=UNLIMITED, limit=UNLIMITED, weight=1)
    assert figures.rank == 0


def test_null_is_unlimited_and_fractions_of_gpus_are_milli() -> None:
    assert quota(queue(quota=None)).gpu.quota == UNLIMITED
    assert quota(queue(quota="2.5", limit=4)).gpu == Figures(quota=2500, limit=4000)


def test_figures_of_a_pool_replace_those_of_the_queue_one_by_one() -> None:
    written = queue(quota=1, limit=5, weight=2, pools={"h100": {"gpu": {"quota": 3}}})
    assert quota(written, "a100", nodePools=POOLS).gpu == Figures(1000, 5000, 2)
    assert quota(written, "h100", nodePools=POOLS).gpu == Figures(3000, 5000, 2)


@pytest.mark.parametrize("most", [10**9, 2**63 - 1])
def test_a_file_may_have_every_weight_that_the_api_accepts(most: int) -> None:
    """In all units: memory may be counted in bytes, and weights of other queues have decimals."""
    queues: list[dict[str, Any]] = [{"name": "department"}]
    for name, weight in (("a", most), ("b", most), ("c", "0.000001")):
        figures = {"quota": 0, "weight": weight}
        memory = {**figures, "limit": 1001}
        of_all = {"gpu": figures, "cpu": figures, "memory": memory}
        queues.append({"name": name, "parent": "department", **of_all})
    jobs = [job(name, name, gpu=4, memory="750") for name in "abc"]
    shares = decide(seen(queues=queues, jobs=jobs, nodes=[node(gpus=4)])).shares
    assert [shares[name, "default"].fair_share[GPU] for name in "abc"] == [2000, 2000, 0]


def test_weights_that_are_fractions_are_made_whole_together() -> None:
    queues = [queue("a", weight=0.5), queue("b", weight="0.75"), queue("c", weight=2)]
    made = seen(queues=queues).queues
    assert [view.pools["default"].gpu.weight for view in made.values()] == [2, 3, 8]
    assert made["a"].pools["default"].cpu.weight == 1


def test_better_priority_of_a_queue_is_a_lower_rank_and_usage_is_millionths() -> None:
    written = queue(priority=101, usage={"gpu": 0.25})
    assert quota(written).rank == -1
    assert quota(written).figures[GPU].usage_ppm == 250_000
    assert quota(written).figures[CPU].usage_ppm == 0


def test_queues_are_older_the_earlier_they_stand() -> None:
    made = seen(queues=[queue("z"), queue("a", parent="z")]).queues
    assert [(view.created_at, view.parent) for view in made.values()] == [(0, ""), (1, "z")]


def test_a_queue_has_the_minimum_run_times_that_it_states() -> None:
    queues = [
        queue("d", reclaimMinRuntime=60, preemptMinRuntime=30),
        queue("a", parent="d"),
        queue("b", parent="d", reclaimMinRuntime=0),
    ]
    made = seen(queues=queues).queues
    assert (made["d"].reclaim_min_runtime_s, made["d"].preempt_min_runtime_s) == (60, 30)
    assert (made["a"].reclaim_min_runtime_s, made["a"].preempt_min_runtime_s) == (None, None)
    assert (made["b"].reclaim_min_runtime_s, made["b"].preempt_min_runtime_s) == (0, None)


def test_job_is_preemptible_by_its_priority_unless_it_says_so() -> None:
    assert workload(priority=99).is_preemptible
    assert not workload(priority=100).is_preemptible
    assert workload(priority=100, preemptible=True).is_preemptible
    assert not workload(priority=1, preemptible=False).is_preemptible


def test_task_without_constraints_may_run_anywhere() -> None:
    assert workload().pods[0].constraints is ANYWHERE


def test_node_types_of_queue_and_department_narrow_by_kind_of_work() -> None:
    queues = [
        queue("d", nodeTypes={"interactive": {"zone": ["z"]}}),
        queue(parent="d", nodeTypes={"interactive": {"type": ["t4", "v100"]}}),
    ]
    jobs = [job("i", kind="interactive", nodeSelector={"disk": "ssd"}), job("t", kind="training")]
    made = seen(queues=queues, jobs=jobs).workloads
    assert made["default/t"].pods[0].constraints is ANYWHERE
    found = made["default/i"].pods[0].constraints
    assert found.node_selector == (("disk", "ssd"),)
    assert found.affinity is not None
    (term,) = found.affinity.node_selector_terms
    assert [(r.key, r.values) for r in term.match_expressions or []] == [
        ("type", ["t4", "v100"]),
        ("zone", ["z"]),
    ]


def test_all_node_affinity_stands_in_one_term() -> None:
    rules = [
        {"key": "a", "operator": "In", "values": ["1"]},
        {"key": "b", "operator": "Exists"},
    ]
    affinity = workload(nodeAffinity=rules).pods[0].constraints.affinity
    assert affinity is not None
    (term,) = affinity.node_selector_terms
    assert [r.operator for r in term.match_expressions or []] == ["In", "Exists"]


def test_equal_constraints_are_one_object() -> None:
    jobs = [job(name, nodeSelector={"k": "v"}) for name in ("a", "b")]
    found = [view.pods[0].constraints for view in seen(jobs=jobs).workloads.values()]
    assert found[0] is found[1]


def test_pod_affinity_is_carried_over() -> None:
    term = {"topologyKey": "zone", "labels": {"app": "db"}}
    found = workload(podAffinity=[term]).pods[0].constraints.pod_affinity
    assert [(each.topology_key, each.labels) for each in found] == [("zone", (("app", "db"),))]


def test_minimum_is_all_tasks_unless_it_is_given_and_may_exceed_them() -> None:
    assert workload(n=3).min_member == 3
    assert workload(n=3, group={"min": 1}).min_member == 1
    assert workload(group={"min": 2}).min_member == 2
    assert workload(n=3).tree is None


def test_groups_without_minima_need_all_of_theirs() -> None:
    children = [{"name": "a", "min": 2}, {"name": "b", "min": 1}]
    tasks = [{"name": "t", "n": 3, "group": "a"}, {"name": "u", "n": 2, "group": "b"}]
    view = workload(group={"children": children}, tasks=tasks)
    assert view.min_member == 3
    assert view.tree is not None
    assert (view.tree.min_groups, view.tree.min_member) == (2, 3)
    assert view.tree.children[0] == GroupView(name="a", min_member=2)
    assert [pod.group for pod in view.pods] == ["a", "a", "a", "b", "b"]


def test_minimum_number_of_groups_needs_the_smallest_of_them() -> None:
    children = [{"name": "a", "min": 2}, {"name": "b", "min": 1}]
    tasks = [{"name": "t", "n": 2, "group": "a"}, {"name": "u", "group": "b"}]
    assert workload(group={"minGroups": 1, "children": children}, tasks=tasks).min_member == 1


def test_nearness_makes_a_tree_of_one_group() -> None:
    near = {"name": "t", "required": "rack", "preferred": None}
    view = workload(n=2, group={"topology": near})
    assert view.tree is not None
    assert view.tree.topology is not None
    assert (view.tree.topology.topology, view.tree.topology.required) == ("t", "rack")


def test_topologies_list_their_labels_widest_first() -> None:
    levels = [{"label": "zone"}, {"label": "rack"}]
    assert seen(topologies=[{"name": "t", "levels": levels}]).topologies == {"t": ("zone", "rack")}


def test_gang_is_stale_only_while_it_is_below_its_minimum() -> None:
    below = workload(on="n0", group={"min": 2}, stale={"for": 30, "grace": None})
    assert (below.stale_since, below.stale_grace_s) == (NOW_S - 30, None)
    enough = workload(on="n0", n=2, group={"min": 2}, stale={"for": 30, "grace": 60})
    assert (enough.stale_since, enough.stale_grace_s) == (None, 60)
    assert workload(group={"min": 2}, stale={"for": 30}).stale_since is None


def test_settings_are_carried_over() -> None:
    settings = {
        "stages": ["reclaim", "allocate"],
        "maxConsolidationVictims": 3,
        "reclaimMovesVictims": False,
        "usageWeight": 0.5,
    }
    found = settings_of(case(settings=settings))
    assert found.stages == ("reclaim", "allocate")
    assert (found.max_moves, found.moves_reclaimed, found.usage_weight_milli) == (3, False, 500)
    usual = ("allocate", "consolidate", "reclaim", "preempt", "empty-nodes")
    assert settings_of(case()).stages == usual


def test_reversed_snapshot_says_the_same_in_another_order() -> None:
    made = world(
        nodes=[node("n0"), node("n1")],
        queues=[queue("a"), queue("b")],
        jobs=[job("x", n=2, on="n1"), job("y", "b")],
    )
    there, back = take_snapshot(made), take_snapshot(made, is_reversed=True)
    assert list(back.workloads) == list(there.workloads)[::-1]
    assert list(back.queues) == list(there.queues)[::-1]
    assert back.nodes.cards.names == there.nodes.cards.names[::-1]
    assert back.workloads["default/x"].pods == there.workloads["default/x"].pods[::-1]
    assert list(back.nodes.cards.free_of(0)) == list(there.nodes.cards.free_of(1))
