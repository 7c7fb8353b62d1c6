"""Requests and node constraints of a pod."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from extender.api import names
from extender.api.objects import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    PodSpec,
    Port,
    Requirement,
)
from extender.cycle.pods.release import release_patch
from tests.support.builders import (
    gpu_node,
    part,
    pod,
    row,
)
from tests.unit.state.model import only


@pytest.mark.parametrize("wish", [None, [NodeSelectorTerm([Requirement("zone", "In", ["a"])])]])
def test_the_nodes_of_a_release_are_not_what_the_pod_wants_of_nodes(
    wish: list[NodeSelectorTerm] | None,
) -> None:
    """Else a pod could never be moved: its successor may go anywhere."""
    held = pod("a").needs(500).build()
    selector = NodeSelector(wish) if wish else None
    asked = replace(held.spec, affinity=Affinity(NodeAffinity(selector)))
    before = only(replace(held, spec=asked)).pods[0]
    patch = release_patch(before, 7, "n1", ("n1", "n2"))["spec"]["affinity"]["nodeAffinity"]
    pinned = msgspec.convert(patch, NodeAffinity)
    released = pod("a").needs(500).released("n1", 7).build()
    spec = replace(released.spec, affinity=Affinity(pinned))
    waits = only(replace(released, spec=spec)).pods[0].constraints
    assert waits == msgspec.structs.replace(before.constraints, only_nodes=("n1", "n2"))
    running = replace(released, spec=replace(spec, node_name="n1"))
    ledger = gpu_node("n1", 1).holds(row(running, part(0, 500))).build()
    assert only(running, ledger).pods[0].constraints == before.constraints


@pytest.mark.parametrize(("said", "checkpoint_s"), [("1800", 1800), ("0", 0), ("30m", None)])
def test_a_pod_says_how_often_it_saves_its_work(said: str, checkpoint_s: int | None) -> None:
    notes = {names.ANNOTATION_CHECKPOINT: said}
    (found,) = only(pod("a").needs(500).notes(notes).build()).pods
    assert found.checkpoint_s == checkpoint_s


@pytest.mark.parametrize(
    ("said", "deadline_s", "run_s"),
    [("7200", None, 7200), ("", 600, 600), ("7200", 600, 600), ("60", 600, 60), ("2h", None, None)],
)
def test_a_pod_says_how_long_it_runs(said: str, deadline_s: int | None, run_s: int | None) -> None:
    made = pod("a").needs(500).notes({names.ANNOTATION_EXPECTED_RUN: said} if said else {}).build()
    made = replace(made, spec=replace(made.spec, active_deadline_seconds=deadline_s))
    assert only(made).expected_run_s == run_s


def test_a_workload_runs_as_long_as_the_longest_of_its_pods_if_each_says_so() -> None:
    def member(name: str, said: str) -> Pod:
        notes = {names.ANNOTATION_EXPECTED_RUN: said} if said else {}
        return pod(name).needs(500).gang("g", 2).notes(notes).build()

    assert only(member("a", "60"), member("b", "90")).expected_run_s == 90
    assert only(member("a", "60"), member("b", "")).expected_run_s is None


@pytest.mark.parametrize(("said", "weight"), [("3", 3), ("0", 1), ("1001", 1), ("", 1)])
def test_a_pod_states_the_weight_of_its_workload(said: str, weight: int) -> None:
    notes = {names.ANNOTATION_WEIGHT: said}
    assert only(pod("a").needs(500).notes(notes).build()).weight == weight


def test_a_host_port_is_left_to_kube_scheduler_and_puts_the_workload_in_doubt() -> None:
    made = pod("a").needs(500).build()
    made.spec.containers[0].ports = [Port(host_port=8080)]
    workload = only(made)
    assert workload.problem is None
    assert workload.doubt is not None
    assert "hostPort" in workload.doubt.detail


def _term(**more: Any) -> dict[str, Any]:
    """Pod anti-affinity with one required term."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}} | more
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"affinity": {"podAntiAffinity": required}}


def _labels(operator: str, *values: str) -> dict[str, Any]:
    expression = {"key": "app", "operator": operator, "values": list(values)}
    return _term(labelSelector={"matchExpressions": [expression]})


@pytest.mark.parametrize(
    ("spec", "doubt"),
    [
        (
            {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
            "topologySpreadConstraints",
        ),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, ""),
        ({"resourceClaims": [{"name": "nic"}]}, "resourceClaims"),
        (_term(namespaces=["team-b"]), "affinity to pods of other namespaces"),
        (_term(namespaceSelector={}), "affinity to pods of other namespaces"),
        (_labels("NotIn", "db"), "by other than plain labels"),
        (_labels("In", "db", "web"), "by other than plain labels"),
        (_labels("In", "db"), ""),
        (_term(labelSelector={"matchLabels": {"app": "db"}}), ""),
    ],
    ids=str,
)
def test_what_only_kube_scheduler_checks_puts_the_workload_in_doubt(
    spec: dict[str, Any], doubt: str
) -> None:
    made = pod("a").needs(500).build()
    asked = msgspec.convert(msgspec.to_builtins(made.spec) | spec, PodSpec)
    workload = only(replace(made, spec=asked))
    assert workload.problem is None
    found = workload.doubt.detail if workload.doubt else ""
    assert doubt in found
    assert bool(found) is bool(doubt)
