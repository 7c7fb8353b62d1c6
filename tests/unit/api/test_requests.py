"""CPU and memory as kube-scheduler counts them: containers, the pod as a whole, resizes."""

from typing import Any

import msgspec
import pytest

from extender.api.demand import Demand, read_demand
from extender.api.objects import Pod
from extender.api.reasons import Refused
from extender.api.requests import host_held, host_request
from extender.api.units import parse_cpu


def pod(spec: Any = None, status: Any = None, cpu: str = "1") -> Pod:
    container = {"name": "main", "resources": {"requests": {"cpu": cpu} if cpu else {}}}
    body = {
        "metadata": {"name": "a", "namespace": "team-a"},
        "spec": {"containers": [container], **(spec or {})},
        "status": status or {},
    }
    return msgspec.convert(body, Pod)


def given(allocated: str, in_force: str = "") -> dict[str, Any]:
    one = {"name": "main", "allocatedResources": {"cpu": allocated}}
    if in_force:
        one["resources"] = {"requests": {"cpu": in_force}}
    return {"containerStatuses": [one]}


@pytest.mark.parametrize(
    ("spec", "cpu", "milli"),
    [
        ({}, "1", 1000),
        ({"resources": {"requests": {"cpu": "60"}}}, "1", 60_000),
        ({"resources": {"requests": {"cpu": "60"}}}, "", 60_000),
        ({"resources": {"requests": {"memory": "1Gi"}}}, "1", 1000),
        ({"resources": {"limits": {"cpu": "60"}}}, "1", 1000),
        ({"resources": {"limits": {"cpu": "60"}}}, "", 60_000),
        ({"resources": {"requests": {"cpu": "6"}}, "overhead": {"cpu": "250m"}}, "1", 6250),
    ],
)
def test_what_the_pod_asks_for_as_a_whole_stands_for_its_containers(
    spec: Any, cpu: str, milli: int
) -> None:
    demand = read_demand(pod(spec, cpu=cpu))
    assert isinstance(demand, Demand)
    assert demand.cpu_milli == milli


@pytest.mark.parametrize(
    ("status", "milli"),
    [
        ({}, 1000),
        (given("4"), 4000),
        (given("1", "4"), 4000),
        (given("500m"), 1000),
        (given("nonsense"), 1000),
    ],
)
def test_a_pod_holds_what_it_was_given_while_it_is_resized(status: Any, milli: int) -> None:
    built = pod(status=status)
    assert host_held(built, "cpu", parse_cpu) == milli
    assert host_request(built, "cpu", parse_cpu) == 1000


def test_a_pod_holds_what_it_was_given_as_a_whole() -> None:
    spec = {"resources": {"requests": {"cpu": "2"}}}
    built = pod(spec, {"allocatedResources": {"cpu": "8"}})
    assert host_held(built, "cpu", parse_cpu) == 8000
    assert host_request(built, "cpu", parse_cpu) == 2000
    # Without figures for the pod as a whole its containers count.
    assert host_held(pod(status={"allocatedResources": {"cpu": "8"}}), "cpu", parse_cpu) == 1000


@pytest.mark.parametrize(
    ("amounts", "what"),
    [
        ({"cpu": "10P"}, "more cpu than any node has"),
        ({"memory": "8E"}, "more memory than any node has"),
        ({"nvidia.com/gpu": "9E"}, "more nvidia.com/gpu than any node has"),
        ({"nvidia.com/mig-1g.5gb": "9E"}, "more nvidia.com/mig-1g.5gb than any node has"),
        ({"nvidia.com/mig-1g.5gb": "449"}, "449 MIG instances; a node has at most 448"),
    ],
)
def test_a_request_for_more_than_any_node_has_is_refused(
    amounts: dict[str, str], what: str
) -> None:
    """Larger amounts would not fit the 64 bits in which requests are summed."""
    container = {"name": "main", "resources": {"requests": amounts}}
    found = read_demand(pod({"containers": [container]}))
    assert isinstance(found, Refused)
    assert what in found.detail


def test_containers_together_request_no_more_than_any_node_has() -> None:
    containers = [{"name": str(n), "resources": {"requests": {"cpu": "4000000"}}} for n in range(2)]
    assert isinstance(read_demand(pod({"containers": containers[:1]})), Demand)
    assert isinstance(read_demand(pod({"containers": containers})), Refused)
