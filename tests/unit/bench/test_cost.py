"""Figures of cost are of the run that was measured, and of whole lines."""

import json
import os

from tests.bench.cost import count_writes, cpu_s


def line(user: str, verb: str, resource: str, subresource: str = "", stage: str = "") -> bytes:
    told = {"resource": resource, "subresource": subresource}
    event = {
        "stage": stage or "ResponseComplete",
        "verb": verb,
        "user": {"username": user},
        "objectRef": told,
    }
    return json.dumps(event).encode() + b"\n"


def test_writes_that_were_answered_are_counted_by_user_and_resource() -> None:
    log = (
        line("system:serviceaccount:ballast-system:ballast-control", "patch", "pods")
        + line("system:kube-scheduler", "create", "pods", "binding")
        + line("system:kube-scheduler", "create", "pods", "binding")
        + line("system:kube-scheduler", "create", "pods", "binding", stage="RequestReceived")
        + line("system:kube-scheduler", "get", "pods")
        + line("system:kube-scheduler", "create", "events")[:-9]
    )
    assert count_writes(log) == {
        ("ballast-control", "pods"): 1,
        ("kube-scheduler", "pods/binding"): 2,
    }


def test_cpu_time_of_a_process_grows_with_what_it_computes() -> None:
    before = cpu_s(os.getpid())
    while cpu_s(os.getpid()) == before:
        sum(range(10_000))
    assert cpu_s(os.getpid()) > before


def test_a_process_that_is_gone_has_taken_nothing() -> None:
    assert cpu_s(2**22 + 1) == 0.0
