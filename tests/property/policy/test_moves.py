"""Moves are the cheapest and the fewest: compared with each node that could be cleared instead."""

from hypothesis import event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.policy.decide import decide
from extender.policy.plan import Plan, Settings
from extender.policy.preemption.lost_work import seconds_lost
from extender.state.model import Constraints
from tests.property.policy.world import apply
from tests.support.snapshot_job import NOW_S
from tests.support.snapshots import Cluster

RUN = settings(max_examples=150)
HOST = "kubernetes.io/hostname"
N_CARDS = 8
_SIZES: list[int | str] = ["0.5", 1, 1, 1, 2, 4]
CONSOLIDATE = Settings(stages=("allocate", "consolidate"))


@st.composite
def fragmented(draw: st.DrawFn) -> Cluster:
    """Nodes of eight cards that are partly in use; one workload waits for a whole node."""
    cluster = Cluster()
    n_nodes = draw(st.integers(2, 5))
    cluster.project("a", 8 * n_nodes)
    free = {}
    for at in range(n_nodes):
        cluster.node(f"n{at}", gpus=N_CARDS, labels={HOST: f"n{at}"})
        free[f"n{at}"] = N_CARDS
    for at in range(draw(st.integers(2, 24))):
        size: int | str = draw(st.sampled_from(_SIZES))
        node = draw(st.sampled_from(sorted(free)))
        n_cards = size if isinstance(size, int) else 1
        if free[node] > n_cards:
            free[node] -= n_cards
            cluster.job(f"j{at}", "a", size, on=node, ran=draw(st.integers(1, 1000)))
    cluster.job("claim", "a", N_CARDS)
    return cluster


@RUN
@given(fragmented())
def test_no_other_node_is_cheaper_to_clear(cluster: Cluster) -> None:
    plan = decide(cluster.snapshot(), CONSOLIDATE)
    cost = _cost(plan)
    event(f"{len(plan.moves)} moves")
    others = [
        _cost(decide(_pinned(cluster, node).snapshot(), CONSOLIDATE)) for node in cluster.nodes
    ]
    found = [other for other in others if other is not None]
    assert (cost is None) == (not found)
    assert cost is None or cost <= min(found)


@RUN
@given(fragmented())
def test_no_move_can_be_left_out(cluster: Cluster) -> None:
    plan = decide(cluster.snapshot(), CONSOLIDATE)
    event(f"{len(plan.moves)} moves")
    for spared in plan.moves:
        rest = _without(plan, spared.placement.pod.uid)
        after = apply(apply(cluster, rest), Plan())
        again = decide(after.snapshot(), Settings(stages=("allocate",)))
        assert all(each.workload.key != "ns/claim" for each in again.admissions)


def _without(plan: Plan, spared: str) -> Plan:
    """The moves of the plan without one, and nothing else of it."""
    return Plan(moves=[move for move in plan.moves if move.placement.pod.uid != spared])


def _cost(plan: Plan) -> tuple[int, int] | None:
    """(milli-GPU-seconds, pods) that the plan moves; None if nothing is placed."""
    if not plan.admissions:
        return None
    pods = [move.placement.pod for move in plan.moves]
    lost = sum(seconds_lost(pod, NOW_S, 0) * sum(card.milli for card in pod.cards) for pod in pods)
    return lost, len(pods)


def _pinned(cluster: Cluster, node: str) -> Cluster:
    """The same, but the claim may use this node only."""
    claim = cluster.workloads["ns/claim"]
    only = Constraints(node_selector=((HOST, node),))
    pods = tuple(replace(pod, constraints=only) for pod in claim.pods)
    return Cluster(
        nodes=cluster.nodes,
        pools=cluster.pools,
        departments=cluster.departments,
        projects=cluster.projects,
        workloads=cluster.workloads | {"ns/claim": replace(claim, pods=pods)},
    )
