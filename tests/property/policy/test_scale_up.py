"""What an elastic pool buys, on random clusters."""

from collections import Counter
from dataclasses import replace

from hypothesis import event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as replaced

from extender.policy.decide import decide
from extender.policy.scale_up import left_waiting, scale_ups
from extender.state.model import GPU, ElasticView, QueueView
from tests.property.policy.world import apply, check_invariants, clusters
from tests.support.snapshots import Cluster

RUN = settings(max_examples=200)


def richer(view: QueueView) -> QueueView:
    """The queue with four times its quota, so that many lack nodes rather than quota."""
    pool = view.pools["default"]
    quota = 4 * pool.gpu.quota
    gpu = replace(pool.gpu, quota=quota, limit=max(quota, pool.gpu.limit))
    return replace(view, pools={**view.pools, "default": replace(pool, gpu=gpu)})


def grow(cluster: Cluster, max_nodes: int, n_gpus: int, *, reads_pods: bool = False) -> None:
    """Let the default pool have so many nodes, and queues use them."""
    view = ElasticView(
        max_nodes=max_nodes,
        n_gpus=n_gpus,
        card_mib=16384,
        card_model="A100",
        cpu_milli=1 << 40,
        memory_mib=1 << 40,
        selector=(),
        labels=(),
        provisioning_class="c",
        reads_pods=reads_pods,
    )
    cluster.pools["default"] = replace(cluster.pools["default"], elastic=view)
    for queues in (cluster.projects, cluster.departments):
        queues.update({name: richer(each) for name, each in queues.items()})


@RUN
@given(clusters(), st.integers(2, 12), st.integers(1, 4))
def test_what_is_bought_is_within_quota_and_the_maximum_and_for_work_without_a_place(
    cluster: Cluster, max_nodes: int, n_gpus: int
) -> None:
    grow(cluster, max_nodes=max_nodes, n_gpus=n_gpus)
    plan = decide(cluster.snapshot())
    wanted = scale_ups(cluster.snapshot(), left_waiting(plan)).wanted
    event(f"buys for {len(wanted)}")
    if not wanted:
        return
    new = frozenset[str]().union(*(each.nodes for each in wanted.values()))
    assert 0 < len(new) <= max_nodes - len(cluster.nodes)
    more: Counter[str] = Counter()
    for each in wanted.values():
        project = cluster.projects[each.workload.project]
        milli = sum(pod.demand.total_milli for pod in each.pods)
        for queue in (project.name, project.parent):
            more[queue] += milli
    for queue, milli in more.items():
        views = cluster.projects | cluster.departments
        held = plan.shares[queue, "default"].allocated[GPU]
        assert held + milli <= views[queue].pools["default"].gpu.quota
    admitted = {each.workload.key for each in plan.admissions}
    assert admitted.isdisjoint(wanted)


@RUN
@given(clusters())
def test_with_what_is_kept_for_pods_without_the_gate_every_rule_holds_in_every_cycle(
    cluster: Cluster,
) -> None:
    grow(cluster, max_nodes=12, n_gpus=4, reads_pods=True)
    for _ in range(4):
        wanted = scale_ups(cluster.snapshot(), left_waiting(decide(cluster.snapshot()))).wanted
        event(f"buys for {len(wanted)}")
        for key in wanted:
            workload = cluster.workloads[key]
            pods = tuple(
                replaced(pod, is_gated=False) if pod.state == "gated" else pod
                for pod in workload.pods
            )
            cluster.workloads[key] = replaced(workload, pods=pods)
        after = apply(cluster, decide(cluster.snapshot()))
        check_invariants(cluster, after)
        cluster = after
