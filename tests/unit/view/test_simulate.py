"""What-if: the difference between two decisions."""

import pytest
from msgspec.structs import replace

from extender.view.answers import AddedNodes, AsOf, Job, SimulationSpec, SimulationStatus
from extender.view.picture import BadChangeError, Picture
from extender.view.simulate import apply, simulate
from tests.support.snapshots import Cluster
from tests.unit.policy.test_month_budgets import spend

NOW = AsOf("2026-01-01T00:00:00Z", "1")


def cluster() -> Cluster:
    """Two nodes of 4, full: a holds its quota of 4, b holds 4 with a quota of 2; a waits for 2."""
    made = Cluster()
    made.node("n0", gpus=4)
    made.node("n1", gpus=4)
    made.project("a", quota=4)
    made.project("b", quota=4)
    made.job("a-run", "a", gpus=1, pods=4, on="n0", min=1)
    made.job("b-run", "b", gpus=1, pods=4, on="n1", min=1)
    made.job("wait", "a", gpus=2)
    return made


def status(**spec: object) -> SimulationStatus:
    return simulate(Picture(cluster().snapshot()), SimulationSpec(**spec), NOW)  # type: ignore[arg-type]


def told(found: SimulationStatus) -> set[tuple[str, str]]:
    return {(each.what, each.workload) for each in found.changes}


def test_without_a_change_nothing_differs() -> None:
    found = status()
    assert (found.changes, found.stops) == ([], 0)
    assert found.held_before == found.held_after == "8"
    assert found.waiting_after == "2"


def test_a_quota_that_is_moved_starts_one_and_stops_another() -> None:
    found = status(quotas={"a": "6", "b": "2"})
    assert {("starts", "ns/wait"), ("stops", "ns/b-run")} <= told(found)
    assert found.stops == 1
    assert (found.held_after, found.waiting_before) == ("8", "2")


def reclaiming() -> Cluster:
    """The same, but b has a quota of 2, so two of its pods are evicted for `wait`."""
    made = cluster()
    made.project("a", quota=6)
    made.project("b", quota=2)
    return made


def test_work_that_is_evicted_only_without_the_change_stays() -> None:
    found = simulate(
        Picture(reclaiming().snapshot()), SimulationSpec(quotas={"a": "4", "b": "4"}), NOW
    )
    (stays,) = (each for each in found.changes if each.workload == "ns/b-run")
    assert (stays.what, stays.pods, stays.request) == ("stays", 2, "2")
    assert stays.message == "stops without the change, for ns/wait"
    assert found.stops == 0


def test_work_of_which_fewer_pods_are_evicted_stays_and_does_not_stop() -> None:
    made = reclaiming()
    made.job("wait", "a", gpus=1, pods=2, min=1)
    quotas = {"a": "5", "b": "3"}
    found = simulate(Picture(made.snapshot()), SimulationSpec(quotas=quotas), NOW)
    (stays,) = (each for each in found.changes if each.workload == "ns/b-run")
    assert (stays.what, stays.pods, stays.request) == ("stays", 1, "1")
    assert found.stops == 0


def test_work_of_a_drained_node_that_is_evicted_without_the_drain_does_not_stay() -> None:
    found = simulate(Picture(reclaiming().snapshot()), SimulationSpec(drain=["n1"]), NOW)
    assert {each.what for each in found.changes if each.workload == "ns/b-run"} == {"stops"}


def test_a_department_is_named_as_shares_prints_it() -> None:
    made = cluster()
    made.pool("default")
    made.pool("h100")
    made.department("research", quota=8)
    for name in ("research", "research/default", "department/research"):
        spec = SimulationSpec(quotas={name: "2"})
        changed = apply(Picture(made.snapshot()), spec).snapshot.queues["department/research"]
        assert changed.pools["default"].gpu.quota == 2000, name


def test_another_node_starts_what_waits_and_stops_nothing() -> None:
    found = status(add_nodes=[AddedNodes(like="n0", count=1)])
    assert ("starts", "ns/wait") in told(found)
    assert found.stops == 0
    assert found.held_after == "10"


def test_work_of_a_drained_node_that_has_no_other_place_stops() -> None:
    found = status(drain=["n1"])
    assert ("stops", "ns/b-run") in told(found)
    assert found.stops == 1
    assert found.held_after == "4"


def test_work_of_a_drained_node_that_has_another_place_moves() -> None:
    made = cluster()
    made.node("n2", gpus=4)
    found = simulate(Picture(made.snapshot()), SimulationSpec(drain=["n1"]), NOW)
    (change,) = (each for each in found.changes if each.workload == "ns/b-run")
    assert (change.what, change.pods, change.request) == ("moves", 4, "4")
    assert change.message == "n1 -> n2"
    assert (found.stops, change.lost, found.lost_after) == (0, "0.2", "0.2")


def test_work_of_a_drained_node_that_has_places_for_some_pods_moves_and_stops() -> None:
    made = cluster()
    made.node("n2", gpus=1)
    found = simulate(Picture(made.snapshot()), SimulationSpec(drain=["n1"]), NOW)
    changes = {each.what: each for each in found.changes if each.workload == "ns/b-run"}
    assert {what: each.pods for what, each in changes.items()} == {"moves": 1, "stops": 3}
    assert {each.lost for each in changes.values()} == {"0.1"}
    assert (found.held_after, found.waiting_after) == ("5", "5")


def test_pod_that_waits_beside_pods_of_a_drained_node_starts() -> None:
    made = cluster()
    made.node("n2", gpus=8)
    b_run = made.workloads["ns/b-run"]
    waits = replace(b_run.pods[0].made_again(), uid="new", name="new")
    made.workloads["ns/b-run"] = replace(b_run, pods=(*b_run.pods, waits))
    found = simulate(Picture(made.snapshot()), SimulationSpec(drain=["n1"]), NOW)
    moved = {each.what: each.pods for each in found.changes if each.workload == "ns/b-run"}
    assert moved == {"moves": 4}


def test_pod_that_its_disruption_budget_keeps_on_a_drained_node_does_not_move() -> None:
    made = cluster()
    made.node("n2", gpus=1)
    made.job("kept", "b", gpus=1, on="n2", budgets=("ns/keep",))
    made.budgets["ns/keep"] = 0
    found = simulate(Picture(made.snapshot()), SimulationSpec(drain=["n2"]), NOW)
    assert {each.what for each in found.changes if each.workload == "ns/kept"} == {"cannot move"}


def test_a_job_is_tried_before_it_is_submitted() -> None:
    found = status(jobs=[Job(project="b", pods=1, gpus="0.5")])
    assert ("waits", "b/what-if-0") in told(found)
    room = status(
        jobs=[Job(project="b", pods=4, gpus="1")], add_nodes=[AddedNodes(like="n1", count=2)]
    )
    assert ("starts", "b/what-if-0") in told(room)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (
            {"quotas": {"nobody": "4"}},
            "^there is no project or department 'nobody'; there are: a, ",
        ),
        (
            {"quotas": {"a/h1000": "4"}},
            "^a/h1000: there is no node pool 'h1000'; there are: default",
        ),
        ({"quotas": {"a": "many"}}, "a: "),
        ({"drain": ["n9"]}, "there is no GPU node 'n9'; there are: n0, n1"),
        ({"add_nodes": [AddedNodes(like="n9", count=1)]}, "no GPU node 'n9'; there are: n0, n1"),
        ({"add_nodes": [AddedNodes(like="n0", count=0)]}, "1 to 1000"),
        ({"jobs": [Job(project="a", gpus="1.5")]}, "1.5 GPUs for a pod: give part of one GPU"),
        ({"jobs": [Job(project="c")]}, "there is no project 'c'; there are: a, "),
    ],
)
def test_what_cannot_be_is_said_so(spec: dict[str, object], why: str) -> None:
    with pytest.raises(BadChangeError, match=why):
        status(**spec)


def test_what_stops_or_moves_has_lost_the_work_since_it_was_saved() -> None:
    made = cluster()
    b_run = made.workloads["ns/b-run"]
    started = made.snapshot().now_s - 3540
    pods = tuple(replace(pod, started_at=started) for pod in b_run.pods)
    made.workloads["ns/b-run"] = replace(b_run, pods=pods)
    spec = SimulationSpec(quotas={"a": "6", "b": "2"})
    found = simulate(Picture(made.snapshot()), spec, NOW)
    (stop,) = (each for each in found.changes if each.what == "stops")
    # Two GPUs, each with 59 minutes of work and a minute of restart.
    assert (stop.pods, stop.lost) == (1, "1.0") or (stop.pods, stop.lost) == (2, "2.0")
    assert (found.lost_before, found.lost_after) == ("0", stop.lost)
    drained = simulate(Picture(made.snapshot()), SimulationSpec(drain=["n1"]), NOW)
    assert drained.lost_after == "4.0"


def spent() -> Picture:
    made = Cluster()
    made.node("n0", gpus=4)
    made.project("a", quota=1)
    made.job("first", "a")
    made.job("next", "a")
    spend(made, "a", used=100)
    return Picture(made.snapshot())


def test_larger_budget_starts_what_waits_for_it() -> None:
    found = simulate(spent(), SimulationSpec(budgets={"a": 101}), NOW)
    assert ("starts", "ns/next") in told(found)
    assert {each.gpu_hours_per_month for each in found.queues if each.queue == "a"} == {101}
    assert simulate(spent(), SimulationSpec(budgets={"a": 100}), NOW).changes == []


def test_budget_of_a_project_without_one_is_refused() -> None:
    with pytest.raises(BadChangeError, match="has no gpuHoursPerMonth"):
        status(budgets={"a": 10})
    with pytest.raises(BadChangeError, match="there is no project or department 'nobody'"):
        status(budgets={"nobody": 10})
