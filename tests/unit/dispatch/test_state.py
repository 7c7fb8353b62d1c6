"""Workloads that wait for a nomination, and their clusters."""

from datetime import UTC, datetime
from typing import Any

import pytest

from extender.api.events import Removed, Upserted
from extender.api.objects import Condition, ObjectMeta
from extender.dispatch.kinds import (
    MULTIKUEUE,
    AdmissionCheck,
    CheckParameters,
    CheckSpec,
    CheckState,
    ConfigSpec,
    MultiKueueConfig,
    Workload,
    WorkloadPriority,
    WorkloadStatus,
)
from extender.dispatch.state import DispatchState


def check(name: str, controller: str = MULTIKUEUE, config: str = "workers") -> AdmissionCheck:
    spec = CheckSpec(controller, CheckParameters("MultiKueueConfig", config))
    return AdmissionCheck(ObjectMeta(name=name), spec)


def workload(name: str = "train", *conditions: str, **given: Any) -> Workload:
    """With quota on the manager cluster and the check `far` pending, unless said otherwise."""
    checks = given.pop("checks", {"far": "Pending"})
    meta = ObjectMeta(
        name=name,
        namespace="ns",
        uid=f"uid-{name}",
        creation_timestamp=datetime(2026, 1, given.pop("day", 1), tzinfo=UTC),
        deletion_timestamp=given.pop("deleted", None),
    )
    told = conditions or ("QuotaReserved",)
    status = WorkloadStatus(
        conditions=[Condition(type=each, status="True") for each in told],
        admission_checks=[CheckState(name, state) for name, state in checks.items()],
        cluster_name=given.pop("cluster", None),
    )
    return Workload(
        metadata=meta, spec=WorkloadPriority(given.pop("priority", None)), status=status
    )


def state(*objects: Any) -> DispatchState:
    n_changes = []
    made = DispatchState(lambda: n_changes.append(1))
    config = MultiKueueConfig(ObjectMeta(name="workers"), ConfigSpec(["b", "a"]))
    shown = (check("far"), check("near", "example.com/other"), config, *objects)
    for each in shown:
        made.apply(Upserted(each))
    assert len(n_changes) == len(shown)
    return made


def test_a_workload_with_quota_and_all_other_checks_done_waits_for_a_cluster() -> None:
    found = state(workload(), workload("second", checks={"near": "Ready", "far": "Pending"}))
    assert list(found.pending()) == ["ns/second", "ns/train"]
    assert found.clusters_of("far") == ["b", "a"]


@pytest.mark.parametrize(
    "other",
    [
        workload("train", "Admitted"),
        workload("train", "QuotaReserved", "Finished"),
        workload("train", "QuotaReserved", "Evicted"),
        workload(cluster="a"),
        workload(deleted=datetime(2026, 1, 2, tzinfo=UTC)),
        workload(checks={"far": "Ready"}),
        workload(checks={"far": "Retry"}),
        workload(checks={"near": "Pending", "far": "Pending"}),
        workload(checks={"near": "Pending"}),
        workload(checks={"unknown": "Pending"}),
        workload(checks={}),
    ],
)
def test_what_waits_for_something_else_is_left_alone(other: Workload) -> None:
    assert state(other).pending() == {}


def test_the_higher_priority_comes_first_and_then_the_older() -> None:
    found = state(workload("young", day=3), workload("old", day=2), workload("urgent", priority=9))
    assert list(found.pending()) == ["ns/urgent", "ns/old", "ns/young"]


def test_a_workload_waits_is_admitted_and_is_gone() -> None:
    found = state(workload(), workload("sent", cluster="a"), workload("ended", "Finished"))
    told = [found.progress("ns", name) for name in ("train", "sent", "ended", "unknown")]
    assert told == ["waits", "admitted", "gone", "gone"]


def test_what_is_gone_is_forgotten() -> None:
    found = state(workload())
    found.apply(Removed(Workload, "uid-train", "ns", "train"))
    assert found.pending() == {}
    found.apply(Removed(MultiKueueConfig, "", "", "workers"))
    assert found.clusters_of("far") == []
    assert found.clusters_of("unknown") == []
    assert found.cluster("a") is None
