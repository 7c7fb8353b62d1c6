"""Garbage collection is off while a cycle decides, is restored, and finds little."""

import gc

import pytest

from extender.policy.decide import decide, paused_collector
from extender.policy.preemption.statement import Statement
from extender.policy.workloads.pending import Pending
from tests.support.snapshots import Cluster, counts


def test_nothing_is_collected_inside() -> None:
    assert gc.isenabled()
    with paused_collector():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_inside_does_not_leave_it_off() -> None:
    with pytest.raises(ValueError, match="broken"), paused_collector():
        raise ValueError("broken")
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with paused_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_a_decision_was_worked_out_with_is_freed_without_a_collection() -> None:
    cluster = Cluster()
    cluster.node("n0", gpus=2)
    cluster.project("a", quota=2)
    cluster.project("b")
    cluster.job("b-jobs", "b", pods=2, on="n0", min=1)
    for name in ("one", "other"):
        cluster.job(name, "a")
    gc.disable()
    try:
        gc.collect()
        plan = decide(cluster.snapshot())
        left = [each for each in gc.get_objects() if isinstance(each, (Statement, Pending))]
    finally:
        gc.enable()
    assert counts(plan)["b-jobs", "evicted"] == 2
    assert left == []
