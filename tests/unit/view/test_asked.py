"""What would happen to hypothetical workloads, and at what cost."""

import json
from typing import Any

import msgspec
import pytest

from extender.view.answers import AsOf, Prospect, SimulationSpec, WantedPods, WantedWorkload
from extender.view.asked import tell_of, wanted_of
from extender.view.line import as_unix_s
from extender.view.picture import BadChangeError, Picture
from tests.support.builders import pool, project
from tests.support.snapshot_job import NOW_S
from tests.support.snapshots import Cluster
from tests.unit.state.model import state_of

NOW = AsOf("2026-01-01T00:00:00Z", "1")


def gpus(count: int = 1, n_pods: int = 1, **annotations: str) -> WantedPods:
    limits = {"nvidia.com/gpu": count} if count else {}
    template = {
        "metadata": {"annotations": annotations},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
    }
    return WantedPods(template=msgspec.Raw(json.dumps(template).encode()), count=n_pods)


def wants(*pod_sets: WantedPods, name: str = "train", namespace: str = "a") -> WantedWorkload:
    return WantedWorkload(namespace=namespace, name=name, pod_sets=list(pod_sets))


def cluster() -> Cluster:
    """Two nodes of 4; a and b may have 4 each, and a holds 2."""
    made = Cluster()
    made.node("n0", gpus=4)
    made.node("n1", gpus=4)
    made.project("a", quota=4)
    made.project("b", quota=4)
    made.job("a-run", "a", gpus=1, pods=2, on="n0", run=3600, ran=0)
    return made


def ask(made: Cluster, *wanted: WantedWorkload) -> list[Prospect]:
    """Projects a and b have the namespaces of their names."""
    state = state_of(pool("default").build(), project("a").build(), project("b").build())
    picture = Picture(made.snapshot())
    spec = SimulationSpec(workloads=list(wanted))
    found = wanted_of(spec, picture.snapshot, state.imagine)
    return tell_of(picture, spec, NOW, found, lambda: False).workloads


def only(made: Cluster, *pod_sets: WantedPods, **wanted: Any) -> Prospect:
    (found,) = ask(made, wants(*pod_sets, **wanted))
    return found


def test_work_that_fits_starts_within_quota_and_above_it() -> None:
    within = only(cluster(), gpus(2))
    assert (within.state, within.is_within_quota) == ("starts", True)
    assert (within.project, within.request) == ("a", "2")
    above = only(cluster(), gpus(1, n_pods=4))
    assert (above.state, above.is_within_quota) == ("starts", False)
    assert (within.stops, above.stops, above.moves) == (0, 0, 0)


def test_work_that_is_owed_its_quota_starts_and_says_what_it_stops() -> None:
    made = cluster()
    made.job("b-run", "b", gpus=1, pods=6, on=["n0", "n0", *["n1"] * 4], min=1)
    found = only(made, gpus(1, n_pods=2))
    assert (found.state, found.is_within_quota, found.stops) == ("starts", True, 2)


def test_a_department_is_counted_without_what_stops() -> None:
    made = Cluster()
    made.node("n0", gpus=4)
    made.department("d", quota=4)
    made.project("a", quota=2, department="d")
    made.project("b", quota=2, department="d")
    made.job("b-run", "b", gpus=1, pods=4, on="n0", min=1)
    owed = only(made, gpus(1, n_pods=2))
    assert (owed.state, owed.is_within_quota, owed.stops) == ("starts", True, 2)
    # Of a department that has no more than others lent it, nothing is within quota.
    made.department("d", quota=1)
    assert not only(made, gpus(1)).is_within_quota


def test_work_that_waits_says_why_and_before_when_it_does_not_start() -> None:
    made = cluster()
    made.job("b-run", "b", gpus=1, pods=4, on="n1", run=600, ran=0)
    made.job("more", "b", gpus=1, pods=2, on="n0", run=600, ran=0)
    found = only(made, gpus(4), namespace="b")
    assert (found.state, found.is_within_quota) == ("waits", False)
    assert found.reason
    assert NOW_S + 400 < as_unix_s(found.earliest) < NOW_S + 600
    # With one run time that is not stated, nothing is said.
    made.job("unstated", "a", gpus=1)
    assert not only(made, gpus(4), namespace="b").earliest


def test_work_that_no_node_could_hold_never_starts() -> None:
    found = only(cluster(), gpus(16))
    assert found.state == "never"
    assert "never" in found.message
    unread = only(cluster(), gpus(0, n_pods=1, **{"gpu-fraction": "many"}))
    assert (unread.state, unread.reason) == ("never", "InvalidRequest")
    stranger = only(cluster(), gpus(1), namespace="elsewhere")
    assert (stranger.state, stranger.reason) == ("never", "UnknownProject")


def test_work_without_gpus_is_not_ours() -> None:
    assert only(cluster(), gpus(0)).state == "not ours"


def test_claims_of_a_template_are_not_read() -> None:
    claims = [{"name": "gpus", "resourceClaimTemplateName": "two-gpus"}]
    spec = {"containers": [{"name": "main"}], "resourceClaims": claims}
    template = msgspec.Raw(json.dumps({"spec": spec}).encode())
    assert only(cluster(), WantedPods(template=template, count=1)).state == "not ours"


def test_of_two_that_are_asked_about_the_first_has_the_room() -> None:
    first, second = ask(cluster(), wants(gpus(4), name="z"), wants(gpus(4), name="a"))
    assert (first.workload, first.state) == ("a/z", "starts")
    assert (second.workload, second.state) == ("a/a", "waits")


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ([wants(WantedPods(template=msgspec.Raw(b"[]")))], "a/train: its pod template can't be"),
        ([wants(gpus(1)), wants(gpus(2))], "there is a workload a/train already"),
        ([wants(gpus(1), name="a-run", namespace="ns")], "there is a workload ns/a-run already"),
        ([wants(gpus(1, n_pods=10_001))], "10001 pods; a workload has up to 10000"),
        ([wants(gpus(1, n_pods=-1))], "-1 pods"),
        ([wants(gpus(1), name=f"n{n}") for n in range(101)], "101 workloads are given"),
    ],
)
def test_what_cannot_be_asked_is_said_so(wanted: list[WantedWorkload], why: str) -> None:
    with pytest.raises(BadChangeError, match=why):
        ask(cluster(), *wanted)
