"""Jobs on a manager cluster of MultiKueue go where they start, and run there through Ballast.

Kueue itself runs in all three clusters; docs/many-clusters.md says which release. Skipped without
it: `make kueue` builds it.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.dispatch.clusters import DONE_S, TEAM, Manager, Worker, planes
from tests.support import kueue
from tests.support.controlplane.handles import run_kubectl, wait_for
from tests.support.installation import MANIFESTS
from tests.support.rights import granted, not_granted, not_used, used

Three = tuple[Manager, Worker, Worker]


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Three]:
    if not kueue.PROGRAMS.has():
        pytest.skip("Kueue is missing: `make kueue` builds it")
    with planes(tmp_path) as opened:
        yield opened


def until(is_met: Callable[[], bool], what: str) -> None:
    wait_for(is_met, DONE_S, what)


@pytest.mark.controlplane
@pytest.mark.timeout(1200)
def test_a_job_runs_in_the_cluster_where_it_starts_within_quota(three: Three) -> None:
    manager, busy, free = three
    busy.occupy(4)
    for worker in (busy, free):
        manager.connect(worker.name, worker.kubeconfig())
    manager.connect("broken", None)
    manager.join("broken", "busy", "free")
    first, second = manager.dispatcher("first", 60), manager.dispatcher("second", 25)
    try:
        first.start()
        second.start()
        _the_busy_cluster_is_passed_over(manager, busy, free)
        _what_no_cluster_can_run_is_said(manager)
        first.kill()
        _a_nomination_that_lapses_is_followed_by_another(manager, busy, free)
        _work_that_was_just_sent_counts_and_what_does_not_start_comes_back(manager, busy, free)
        _a_silent_cluster_is_passed_over(manager, busy, free)
    finally:
        second.end()
        first.kill()
    _rights_are_those_that_are_used(manager)


def _the_busy_cluster_is_passed_over(manager: Manager, busy: Worker, free: Worker) -> None:
    manager.submit("train", 2, 1)
    until(lambda: manager.status("train").get("clusterName") == "free", "a cluster to be chosen")
    until(lambda: free.n_running(TEAM) == 2, "the Job's pods to run")
    told = manager.told("train")
    assert (told["status"], told["reason"]) == ("True", "Nominated")
    assert told["message"].startswith("free. broken: gave no answer: ")
    assert "free: starts now, within quota, stops nothing" in told["message"]
    # There it is owed its quota, so that it would start, and stop the work of others.
    assert "busy: starts now, within quota, stops 2 pods" in told["message"]
    assert busy.workloads() == []
    pods = free.admin.get(f"/api/v1/namespaces/{TEAM}/pods")["items"]
    assert {each["spec"]["schedulerName"] for each in pods} == {"ballast-scheduler"}


def _what_no_cluster_can_run_is_said(manager: Manager) -> None:
    manager.submit("huge", 1, 16)
    until(lambda: manager.told("huge")["reason"] == "NoCluster", "the condition to say no")
    message = manager.told("huge")["message"]
    for cluster in ("busy", "free"):
        assert f"{cluster}: can't run (" in message, message
    assert not manager.status("huge").get("nominatedClusterNames")


def _a_nomination_that_lapses_is_followed_by_another(
    manager: Manager, busy: Worker, free: Worker
) -> None:
    """The second dispatcher leads now, and the better cluster admits nothing."""
    free.hold("Hold")
    manager.submit("moved", 1, 1)
    until(lambda: manager.told("moved")["message"].startswith("free. "), "the better to be named")
    assert "free: starts now, above quota, stops nothing" in manager.told("moved")["message"]
    assert "busy: starts now, within quota, stops 1 pod" in manager.told("moved")["message"]
    until(lambda: manager.status("moved").get("clusterName") == "busy", "the other to be named")
    assert manager.told("moved")["message"].startswith("busy. ")
    until(lambda: busy.n_running(TEAM) == 1, "its pod to run in the place of borrowed work")
    free.hold("None")


def _work_that_was_just_sent_counts_and_what_does_not_start_comes_back(
    manager: Manager, busy: Worker, free: Worker
) -> None:
    """Two Jobs want all of the free cluster at the same time."""
    manager.delete("train", "moved")
    until(lambda: free.n_running(TEAM) + busy.n_running(TEAM) == 0, "the team's pods to go")
    until(lambda: busy.n_running("locals") == 4, "the local work to be whole again")
    manager.submit("one", 1, 4)
    manager.submit("two", 1, 4)

    def sent(cluster: str) -> list[str]:
        names = ("one", "two")
        return [each for each in names if manager.status(each).get("clusterName") == cluster]

    until(lambda: len(sent("free") + sent("busy")) == 2, "both to be sent")
    # One that was sent to the same cluster would come back later, and go elsewhere then.
    (runs,), (waits,) = sent("free"), sent("busy")
    assert "free: waits" in manager.told(waits)["message"]
    until(lambda: free.n_running(TEAM) == 1, "the one in the free cluster to run")
    manager.delete(runs)
    until(lambda: sent("free") == [waits], "the other to come back and be sent there")
    until(lambda: free.n_running(TEAM) == 1, "it to run")
    manager.delete(waits)
    until(lambda: free.n_running(TEAM) == 0, "it to go")


def _a_silent_cluster_is_passed_over(manager: Manager, busy: Worker, free: Worker) -> None:
    free.view.kill()
    manager.submit("next", 1, 1)
    until(lambda: manager.status("next").get("clusterName") == "busy", "the other cluster")
    message = manager.told("next")["message"]
    assert "free: gave no answer: " in message, message
    until(lambda: busy.n_running(TEAM) == 1, "its pod to run in the place of borrowed work")


def _rights_are_those_that_are_used(manager: Manager) -> None:
    folder = MANIFESTS.parent / "overlays" / "dispatch"
    grants, uses = granted(folder), used(manager.plane.logs)
    assert not not_granted(uses, grants)
    assert not not_used(uses, grants)
    assert uses
    lease = json.loads(
        run_kubectl(
            manager.plane, "get", "lease", "ballast-dispatch", "-n", "ballast-system", "-o", "json"
        )
    )
    assert lease["spec"]["holderIdentity"] in ("", "second")
