"""What holds for every cluster, checked on random ones."""

from random import Random

from hypothesis import event, given, settings
from hypothesis import strategies as st

from extender.policy.decide import decide
from extender.policy.plan import Settings
from extender.state.model import GPU
from tests.property.policy.world import apply, check_invariants, clusters, crowded, usage_of
from tests.support.snapshots import Cluster, statuses

RUN = settings(max_examples=200)
ALLOCATE_ONLY = Settings(stages=("allocate",))


@RUN
@given(clusters())
def test_cards_limits_quotas_and_gangs_hold_in_every_cycle_until_it_comes_to_rest(
    cluster: Cluster,
) -> None:
    """No ping-pong: with nothing new, at most a few cycles per workload change anything."""
    n_idle = 0
    for _ in range(4 * len(cluster.workloads) + 8):
        plan = decide(cluster.snapshot())
        is_leaving = any(p.is_terminating for w in cluster.workloads.values() for p in w.pods)
        is_idle = not (plan.admissions or plan.evictions or plan.moves or plan.drops)
        n_idle = n_idle + 1 if is_idle and not is_leaving else 0
        if n_idle == 2:
            return
        after = apply(cluster, plan)
        check_invariants(cluster, after)
        cluster = after
    raise AssertionError("it never rests")


@RUN
@given(clusters())
def test_plan_does_not_depend_on_the_order_of_the_lists(cluster: Cluster) -> None:
    plan, other = decide(cluster.snapshot()), decide(cluster.snapshot(is_reversed=True))
    places = [
        {p.pod.uid: (a.state, p.node, p.cards) for a in each.admissions for p in a.placements}
        for each in (plan, other)
    ]
    assert places[0] == places[1]
    assert statuses(plan) == statuses(other)
    assert plan.waits == other.waits
    assert plan.turns == other.turns
    assert plan.shares == other.shares


@RUN
@given(clusters())
def test_shares_add_up_and_none_passes_its_limit(cluster: Cluster) -> None:
    plan = decide(cluster.snapshot())
    capacity = 1000 * sum(len(node.cards) for node in cluster.nodes.values())
    departments = list(cluster.departments)
    assert sum(plan.shares[name, "default"].fair_share[GPU] for name in departments) <= capacity
    for name in departments:
        inside = sum(
            plan.shares[project.name, "default"].fair_share[GPU]
            for project in cluster.projects.values()
            if project.parent == name
        )
        assert inside <= plan.shares[name, "default"].fair_share[GPU]
    for share in plan.shares.values():
        assert 0 <= share.fair_share[GPU] <= min(share.requested[GPU], share.limit[GPU])


@RUN
@given(clusters())
def test_every_waiting_workload_has_a_reason_and_no_other_has(cluster: Cluster) -> None:
    plan = decide(cluster.snapshot())
    done = statuses(plan)
    waiting = {
        key
        for key, workload in cluster.workloads.items()
        if any(pod.state == "gated" and pod.name not in done for pod in workload.pods)
    }
    # A workload with as many places as it may use at once waits for none.
    full = {
        key
        for key in waiting
        if cluster.workloads[key].max_concurrent_pods
        == sum(bool(pod.node) or pod.name in done for pod in cluster.workloads[key].pods)
    }
    assert waiting - full <= set(plan.waits) <= waiting
    assert all(refused.detail for refused in plan.waits.values())


@RUN
@given(crowded())
def test_leaving_out_any_victim_breaks_the_plan(cluster: Cluster) -> None:
    """Pods that may only go together are left out together."""
    plan = decide(cluster.snapshot())
    evicted = {eviction.pod.uid for eviction in plan.evictions}
    event("victims" if evicted else "no victims")
    if plan.moves:
        # A moved pod may take the room of a victim that would stay: see the unit tests.
        event("moves")
        return
    for spared in {eviction.workload for eviction in plan.evictions}:
        victim = cluster.workloads[spared]
        pods = [pod for pod in victim.pods if pod.uid in evicted]
        goes_whole = len(pods) == len(victim.pods)
        for unit in [pods] if goes_whole else [[pod] for pod in pods]:
            assert not _fits_without(cluster, evicted - {pod.uid for pod in unit}, "ns/claim")


@RUN
@given(clusters(), st.randoms(use_true_random=False))
def test_protected_pods_neither_stop_nor_move(cluster: Cluster, random: Random) -> None:
    running = [p.uid for w in cluster.workloads.values() for p in w.pods if p.node]
    protected = frozenset(uid for uid in running if random.random() < 0.5)
    plan = decide(cluster.snapshot(), Settings(protected_pods=protected))
    gone = {e.pod.uid for e in plan.evictions} | {m.placement.pod.uid for m in plan.moves}
    event("victims" if gone else "no victims")
    assert not gone & protected


@RUN
@given(crowded())
def test_taker_stays_within_what_it_deserves_and_givers_were_above_that(cluster: Cluster) -> None:
    plan = decide(cluster.snapshot())
    shares = {name: share.fair_share[GPU] for (name, _), share in plan.shares.items()}
    usage = usage_of(apply(cluster, plan), is_leaving_counted=False, is_promised_counted=True)
    if plan.evictions:
        quota = cluster.projects["owner"].pools["default"].gpu.quota
        assert usage.queues["owner"] <= max(shares["owner"], quota)
    before = usage_of(cluster, is_leaving_counted=False, is_promised_counted=True)
    for eviction in plan.evictions:
        project = cluster.workloads[eviction.workload].project
        # Above its share, or above the quota of none that these projects have.
        assert before.queues[project] > 0


def _fits_without(cluster: Cluster, gone: set[str], chosen: str) -> bool:
    """Whether the workload finds its place when exactly these pods have left."""
    rest = Cluster(
        nodes={
            name: type(node)(
                node.facts, node.cards, node.free, [r for r in node.rows if r.uid not in gone]
            )
            for name, node in cluster.nodes.items()
        },
        pools=cluster.pools,
        departments=cluster.departments,
        projects=cluster.projects,
        workloads={chosen: cluster.workloads[chosen]},
    )
    return bool(decide(rest.snapshot(), ALLOCATE_ONLY).admissions)
