"""Metrics of node pools: free, idle while pods are pending, and how evenly used."""

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from extender.api.events import Upserted
from extender.cycle.pool_metrics import PoolMetrics, fairness_index, pool_sums
from extender.cycle.reports.queue_status import pool_statuses
from extender.policy.plan import Plan, QueueShare
from extender.state.cluster import ClusterState
from extender.state.snapshot import Snapshot
from tests.support.builders import department, gpu_node, node, pod, pool, project, row
from tests.support.builders.ledger import part, whole
from tests.support.snapshots import Cluster


def snapshot(now_s: int) -> Snapshot:
    """Four cards: one is held, one in half, two are free."""
    state = ClusterState()
    full, half = pod("a").bound("n").build(), pod("b").bound("n").build()
    ledger = gpu_node("n", 4).holds(row(full, whole(0), "bound"), row(half, part(1, 500), "bound"))
    queues = (department("d").quota(4), project("a").of("d"), project("b").of("d"))
    for built in (*queues, pool("default"), node("n").gpus(4), ledger):
        state.apply(Upserted(built.build()))
    return state.snapshot(now_s)


def share(held: int, requested: int) -> QueueShare:
    return QueueShare(
        fair_share=(requested, 0, 0), allocated=(held, 0, 0), requested=(requested, 0, 0)
    )


def scraped(figures: PoolMetrics) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(figures)
    lines = generate_latest(registry).decode().splitlines()
    samples = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name.removeprefix("ballast_pool_"): float(value) for name, value in samples}


def test_free_cards_are_distinguished_from_pieces() -> None:
    figures, seen = PoolMetrics(), snapshot(100)
    figures.look(Plan(), seen, pool_sums(seen))
    told = scraped(figures)
    assert told['gpus{node_pool="default",state="held"}'] == 1.5
    assert told['gpus{node_pool="default",state="free_whole"}'] == 2
    assert told['gpus{node_pool="default",state="free_pieces"}'] == 0.5


def test_status_has_the_largest_node_and_card_of_the_pool() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=8, mib=16384)
    cluster.node("n1", gpus=2, mib=81920, unhealthy=(0,))
    cluster.pool("empty")
    found = pool_statuses(pool_sums(cluster.snapshot()))
    largest = {
        name: (each.largest_node_gpus, each.largest_card_mib) for name, each in found.items()
    }
    assert largest == {"default": (8, 81920), "empty": (0, 0)}


def test_what_is_free_is_idle_only_as_far_as_work_asks_for_it() -> None:
    plan = Plan()
    plan.shares["a", "default"] = share(1500, 3000)
    plan.shares["department/d", "default"] = share(1500, 3000)
    figures = PoolMetrics()
    for now_s in (100, 110):
        seen = snapshot(now_s)
        figures.look(plan, seen, pool_sums(seen))
    assert scraped(figures)['idle_while_waiting_gpu_seconds_total{node_pool="default"}'] == 15


def test_a_pool_is_fair_where_all_have_the_same_part_of_what_they_are_owed() -> None:
    assert fairness_index([]) == 1
    assert fairness_index([share(0, 0), share(1000, 2000), share(4000, 8000)]) == pytest.approx(1)
    assert fairness_index([share(1000, 1000), share(0, 1000)]) == pytest.approx(0.5)


def test_what_a_queue_holds_above_what_it_is_owed_makes_no_pool_less_fair() -> None:
    borrower = QueueShare(fair_share=(1000, 0, 0), allocated=(3000, 0, 0), requested=(3000, 0, 0))
    assert fairness_index([share(1000, 1000), borrower]) == pytest.approx(1)


def test_figures_end_with_the_term() -> None:
    figures, seen = PoolMetrics(), snapshot(100)
    figures.look(Plan(), seen, pool_sums(seen))
    figures.clear()
    assert scraped(figures) == {}
