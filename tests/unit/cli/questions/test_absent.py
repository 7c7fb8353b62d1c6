"""`ballast why` about a name without a live pod of Ballast."""

from typing import Any

import pytest

from extender.cli.questions.absent import absence


def pod(scheduler: str, phase: str = "Pending") -> dict[str, Any]:
    return {"spec": {"schedulerName": scheduler}, "status": {"phase": phase}}


def event(kind: str, name: str, at: str, message: str) -> dict[str, Any]:
    about = {"kind": kind, "name": name}
    return {"involvedObject": about, "lastTimestamp": f"2026-11-01T10:00:{at}Z", "message": message}


EVENTS = [
    event("ReplicaSet", "vllm-8664c57b6d", "01", "old"),
    event("ReplicaSet", "vllm-8664c57b6d", "05", "denied: gpu-memory: '10Gi'"),
    event("Job", "other", "09", "no"),
]


@pytest.mark.parametrize(
    ("pods", "said"),
    [
        ([pod("default-scheduler")], "pod x is left to the scheduler default-scheduler: Ballast"),
        ([pod("ballast-scheduler", "Succeeded")], "pod x has ended (Succeeded)"),
        ([pod("ballast-scheduler")], ""),
        ([], ""),
    ],
)
def test_a_pod_that_ballast_does_not_hold_is_told_why(
    pods: list[dict[str, Any]], said: str
) -> None:
    found = absence("x", pods, EVENTS)
    assert found.startswith(said)
    assert bool(found) == bool(said)


def test_an_owner_without_pods_is_told_why_its_last_pod_was_refused() -> None:
    found = absence("vllm", (), EVENTS)
    assert found.startswith("replicaset/vllm-8664c57b6d could not create a pod ")
    assert found.endswith(" ago: denied: gpu-memory: '10Gi'")
