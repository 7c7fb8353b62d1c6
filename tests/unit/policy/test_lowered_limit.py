"""A limit that was lowered below what the project holds."""

from extender.policy.decide import decide
from extender.policy.plan import Settings
from tests.support.snapshots import Cluster


def over_its_limit() -> Cluster:
    """One node of 8: project a runs 6 jobs of 1 GPU each, and its limit is now 2."""
    cluster = Cluster()
    cluster.node("n0", gpus=8)
    cluster.project("a", quota=1, limit=2)
    for ix in range(6):
        cluster.job(f"train-{ix}", "a", on="n0")
    return cluster


def n_evicted(cluster: Cluster) -> int:
    return len(decide(cluster.snapshot(), Settings()).evictions)


def test_a_lowered_limit_evicts_nothing_by_itself() -> None:
    cluster = over_its_limit()
    assert n_evicted(cluster) == 0
    cluster.job("more", "a")
    assert n_evicted(cluster) == 0


def test_urgent_work_evicts_until_its_project_is_within_the_new_limit() -> None:
    cluster = over_its_limit()
    cluster.job("notebook", "a", gpus="0.5", kind="interactive")
    assert n_evicted(cluster) == 5
