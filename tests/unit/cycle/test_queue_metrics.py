"""Metrics of queues: present figures, absent ones, and sums of unmet demand."""

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.exposition import generate_latest

from extender.api.reasons import Reason, Refused
from extender.cycle import metrics
from extender.cycle.queue_metrics import QueueMetrics
from extender.policy.plan import Plan, QueueShare
from extender.state.model import UNLIMITED, MonthHours, QueueView, WorkloadView
from extender.state.nodes import NodeTable
from extender.state.snapshot import Snapshot


def seen_at(now_s: int) -> Snapshot:
    waiting = WorkloadView(key="a/train", namespace="a", name="train", project="a")
    return Snapshot(
        now_s=now_s,
        nodes=NodeTable(),
        queues={"a": QueueView("a"), "department/ml": QueueView("department/ml")},
        pools={},
        workloads={waiting.key: waiting},
    )


def plan(share: QueueShare) -> Plan:
    made = Plan(waits={"a/train": Refused(Reason.NON_PREEMPTIBLE_OVER_QUOTA, "")})
    made.shares[("a", "default")] = share
    made.shares[("a/user/eve", "default")] = share
    made.shares[("department/ml", "default")] = QueueShare()
    return made


def scraped(figures: QueueMetrics) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(figures)
    lines = generate_latest(registry).decode().splitlines()
    samples = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name.removeprefix("ballast_queue_"): float(value) for name, value in samples}


def test_projects_have_their_figures_and_users_have_none() -> None:
    figures = QueueMetrics()
    share = QueueShare(
        quota=(2000, 0, 0), fair_share=(4000, 0, 0), allocated=(2500, 0, 0), requested=(9000, 0, 0)
    )
    figures.look(plan(share), seen_at(100))
    of = '{node_pool="default",queue="a"}'
    assert scraped(figures) == {
        f"quota_gpus{of}": 2,
        f"fair_share_gpus{of}": 4,
        f"requested_gpus{of}": 9,
        f"owed_gpus{of}": 4,
        f"held_gpus{of}": 2.5,
        f"borrowed_gpus{of}": 0.5,
        f"non_preemptible_gpus{of}": 0,
        f"deprived_gpu_seconds_total{of}": 0,
        f"in_quota_gpu_seconds_total{of}": 0,
        f"over_quota_gpu_seconds_total{of}": 0,
        'pending_workloads{queue="a",reason="NonPreemptibleOverQuota"}': 1,
    }


def test_what_is_not_bounded_has_no_quota_and_no_limit() -> None:
    figures = QueueMetrics()
    share = QueueShare(quota=(UNLIMITED, 0, 0), limit=(UNLIMITED, 0, 0), allocated=(1000, 0, 0))
    figures.look(plan(share), seen_at(100))
    told = scraped(figures)
    assert not any(name.startswith(("quota", "limit")) for name in told)
    assert told['borrowed_gpus{node_pool="default",queue="a"}'] == 0


def test_a_queue_is_deprived_of_what_it_lacks_as_long_as_it_lacks_it() -> None:
    figures = QueueMetrics()
    of = 'deprived_gpu_seconds_total{node_pool="default",queue="a"}'
    lacking = QueueShare(fair_share=(4000, 0, 0), requested=(3000, 0, 0), allocated=(500, 0, 0))
    having = QueueShare(fair_share=(4000, 0, 0), requested=(3000, 0, 0), allocated=(3000, 0, 0))
    figures.look(plan(lacking), seen_at(100))
    figures.look(plan(lacking), seen_at(104))
    figures.look(plan(having), seen_at(110))
    assert scraped(figures)[of] == 25
    figures.look(plan(lacking), seen_at(200))
    assert scraped(figures)[of] == 25


def test_what_a_queue_borrows_makes_up_for_nothing_that_it_lacked_before() -> None:
    figures = QueueMetrics()
    of = 'deprived_gpu_seconds_total{node_pool="default",queue="a"}'
    lacking = QueueShare(fair_share=(2000, 0, 0), requested=(2000, 0, 0))
    borrowing = QueueShare(fair_share=(2000, 0, 0), requested=(9000, 0, 0), allocated=(9000, 0, 0))
    figures.look(plan(lacking), seen_at(100))
    figures.look(plan(borrowing), seen_at(110))
    figures.look(plan(borrowing), seen_at(120))
    assert scraped(figures)[of] == 20


def test_figures_end_with_the_term() -> None:
    metrics.QUEUES.look(plan(QueueShare(quota=(1000, 0, 0))), seen_at(100))
    labels = {"queue": "a", "node_pool": "default"}
    assert REGISTRY.get_sample_value("ballast_queue_quota_gpus", labels) == 1
    metrics.end_term()
    assert REGISTRY.get_sample_value("ballast_queue_quota_gpus", labels) is None


def test_budget_and_its_use_are_reported_where_they_are_known() -> None:
    figures, hour = QueueMetrics(), 3_600_000
    of = '{node_pool="default",queue="a"}'
    share = QueueShare(month=MonthHours(10 * hour, 4 * hour, "1970-01"))
    figures.look(plan(share), seen_at(100))
    told = scraped(figures)
    assert told[f"month_budget_gpu_hours{of}"] == 10
    assert told[f"month_used_gpu_hours{of}"] == 4
    figures.look(plan(QueueShare(month=MonthHours(10 * hour))), seen_at(101))
    assert f"month_used_gpu_hours{of}" not in scraped(figures)
