"""Figures of cost cover only the measured run, and complete lines."""

import json
import os
from datetime import UTC, datetime

from tests.bench.cost import Cost, cpu_s, read_writes

BEGAN_S = 1764090000.0


def line(
    user: str, verb: str, resource: str, subresource: str = "", stage: str = "", at_s: float = 0
) -> bytes:
    told = {"resource": resource, "subresource": subresource}
    at = datetime.fromtimestamp(BEGAN_S + at_s, UTC)
    event = {
        "stage": stage or "ResponseComplete",
        "verb": verb,
        "stageTimestamp": at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "user": {"username": user},
        "objectRef": told,
    }
    return json.dumps(event).encode() + b"\n"


def test_writes_that_were_answered_are_told_by_user_and_resource_in_order_of_time() -> None:
    log = (
        line("system:serviceaccount:ballast-system:ballast-control", "patch", "pods", at_s=0.25)
        + line("system:kube-scheduler", "create", "pods", "binding", at_s=2)
        + line("system:kube-scheduler", "create", "pods", "binding", at_s=1.5)
        + line("system:kube-scheduler", "create", "pods", "binding", stage="RequestReceived")
        + line("system:kube-scheduler", "get", "pods")
        + line("system:kube-scheduler", "create", "events")[:-9]
    )
    assert read_writes(log, BEGAN_S) == {
        ("ballast-control", "pods"): [0.25],
        ("kube-scheduler", "pods/binding"): [1.5, 2.0],
    }


def test_kubelets_do_not_count_among_the_writes() -> None:
    cost = Cost({}, {("kwok", "pods/status"): [1.0], ("kube-scheduler", "events"): [1.0, 2.0]})
    assert cost.n_writes == 2


def test_cpu_time_of_a_process_grows_with_what_it_computes() -> None:
    before = cpu_s(os.getpid())
    while cpu_s(os.getpid()) == before:
        sum(range(10_000))
    assert cpu_s(os.getpid()) > before


def test_a_process_that_is_gone_has_taken_nothing() -> None:
    assert cpu_s(2**22 + 1) == 0.0
