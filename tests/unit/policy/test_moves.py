"""How many pods of a Job's gang are moved at once: those that a Job recreates in time."""

import pytest

from extender.policy.decide import decide
from tests.support.snapshots import Cluster


def scattered(*, of_job: bool = True, **job: int) -> Cluster:
    """Eight nodes of four GPUs, each with a pod of one GPU; no other node has room for four."""
    cluster = Cluster()
    cluster.pool("default")
    nodes = [f"n{at}" for at in range(8)]
    for name in nodes:
        cluster.node(name, gpus=4)
    cluster.department("d", quota=32)
    cluster.project("a", quota=32, department="d")
    cluster.job("wide", "a", on=nodes, ran=9_000, of_job=of_job, **job)
    return cluster


@pytest.mark.parametrize(("n_pods", "n_moves"), [(3, 3), (4, 0)])
def test_of_a_job_no_more_pods_move_than_come_back_in_time(n_pods: int, n_moves: int) -> None:
    cluster = scattered()
    cluster.job("big", "a", gpus=4, pods=n_pods)
    assert len(decide(cluster.snapshot()).moves) == n_moves


def test_several_workloads_may_move_no_more_of_a_gang_than_one() -> None:
    cluster = scattered()
    for at in range(5):
        cluster.job(f"big-{at}", "a", gpus=4)
    assert len(decide(cluster.snapshot()).moves) == 3


def test_a_gang_that_no_job_makes_moves_without_that_bound() -> None:
    cluster = scattered(of_job=False)
    cluster.job("big", "a", gpus=4, pods=4)
    assert len(decide(cluster.snapshot()).moves) == 4


def test_pods_that_do_not_need_one_another_move_without_that_bound() -> None:
    cluster = scattered(min=1)
    cluster.job("big", "a", gpus=4, pods=4)
    assert len(decide(cluster.snapshot()).moves) == 4
