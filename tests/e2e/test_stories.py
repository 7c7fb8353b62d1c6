"""What users do, with kubectl and annotations only."""

from collections.abc import Iterator

import pytest

from tests.e2e import workloads
from tests.e2e.conftest import Installed
from tests.e2e.site import ROOT, SYSTEM, Site, close_simulated, open_simulated
from tests.e2e.workloads import DEPARTMENT, LANGUAGE, VISION

RUNNING_S = 120.0
WAITING_S = 120.0


@pytest.fixture
def users(installed: Installed) -> Iterator[Site]:
    """The installed cluster with departments and projects; the story's work goes afterwards."""
    site, n_gpus = installed.site, installed.site.n_gpus()
    half = n_gpus // 2
    site.apply(
        workloads.namespace(VISION),
        workloads.namespace(LANGUAGE),
        workloads.department(DEPARTMENT, n_gpus),
        workloads.project(VISION, DEPARTMENT, n_gpus - half),
        workloads.project(LANGUAGE, DEPARTMENT, half),
    )
    yield site
    for project in (VISION, LANGUAGE):
        kinds = "jobs,deployments,replicasets,pods"
        site.kubectl("delete", kinds, "-n", project, "--all", "--wait", "--timeout=120s")


def test_a_deployment_of_half_gpus_runs_two_to_a_card(users: Site) -> None:
    template = workloads.fraction(users.image(), "0.5", users.real_node)
    users.apply(workloads.deployment("ranker", VISION, 4, template))

    users.kubectl("rollout", "status", "deployment/ranker", "-n", VISION, "--timeout=120s")

    cards = [
        (each["spec"]["nodeName"], each["metadata"]["annotations"]["ballast.dev/cards"])
        for each in users.get("pods", "-n", VISION, "-l", "app=ranker")
    ]
    assert len(cards) == 4
    assert len(set(cards)) == 2


def test_a_job_of_several_pods_runs_whole(users: Site) -> None:
    users.apply(workloads.job("train", VISION, 3, workloads.whole(users.image(), 1)))

    users.wait("pods", RUNNING_S, lambda: len(users.pods(VISION, "Running", app="train")), 3)


def test_a_job_that_cannot_run_whole_does_not_start(users: Site) -> None:
    n_pods = users.n_gpus() + 1
    users.apply(workloads.job("huge", VISION, n_pods, workloads.whole(users.image(), 1)))
    users.wait("pods", WAITING_S, lambda: len(users.pods(VISION, app="huge")), n_pods)

    users.wait("told why", WAITING_S, lambda: _is_told_why(users, VISION, "huge"), True)

    pods = users.get("pods", "-n", VISION, "-l", "app=huge")
    assert [each["spec"].get("nodeName") for each in pods] == [None] * n_pods


def test_why_a_job_waits_is_answered_by_the_overlay_view(users: Site) -> None:
    """As README installs it; `ballast` runs on the user's machine."""
    folder = ROOT / "manifests" / "overlays" / "view"
    close_simulated(users)
    try:
        users.kubectl("apply", "--server-side", "-k", str(folder))
        ready = ("--for=condition=Available", f"--timeout={WAITING_S:.0f}s")
        users.kubectl("wait", "-n", SYSTEM, "deployment", "ballast-view", *ready)
        users.kubectl("wait", "apiservice", "v1alpha1.view.ballast.dev", *ready)
    finally:
        open_simulated(users)
    try:
        n_pods = users.n_gpus() + 1
        users.apply(workloads.job("huge", VISION, n_pods, workloads.whole(users.image(), 1)))
        users.wait("told why", WAITING_S, lambda: _is_told_why(users, VISION, "huge"), True)
        assert "huge" in users.ballast("queue", VISION)
        said = users.ballast("why", VISION, "job/huge")
        assert "WILL NEVER START" in said, said
    finally:
        users.kubectl("delete", "-k", str(folder), "--timeout=120s")


def test_an_interactive_pod_over_quota_waits_and_says_so(users: Site) -> None:
    n_gpus = users.n_gpus() // 2 + 1
    template = workloads.whole(
        users.image(), 1, workload_kind="interactive", preemptibility="non-preemptible"
    )
    for ix in range(n_gpus):
        users.apply(workloads.pod(f"notebook-{ix}", LANGUAGE, template))

    users.wait("running", RUNNING_S, lambda: len(users.pods(LANGUAGE, "Running")), n_gpus - 1)
    (waits,) = users.pods(LANGUAGE, "Pending")
    users.wait(
        "the reason",
        WAITING_S,
        lambda: "NonPreemptibleOverQuota" in users.reasons(LANGUAGE, waits),
        True,
    )


def test_what_is_not_understood_is_refused_with_a_sentence(users: Site) -> None:
    template = workloads.fraction(users.image(), "1.5")
    with pytest.raises(Exception, match="kubectl") as refusal:
        users.apply(workloads.pod("wrong", VISION, template))
    assert "gpu-fraction" in " ".join(refusal.value.__notes__)


def test_an_owner_gets_its_quota_back(users: Site) -> None:
    n_gpus = users.n_gpus()
    quota = n_gpus // 2
    borrower = workloads.whole(users.image(), 1)
    users.apply(workloads.deployment("borrower", VISION, n_gpus, borrower))
    users.wait("borrowed", RUNNING_S, lambda: len(users.pods(VISION, "Running")), n_gpus)

    owner = workloads.whole(users.image(), 1)
    users.apply(workloads.deployment("owner", LANGUAGE, quota, owner))

    users.wait("given back", RUNNING_S, lambda: len(users.pods(LANGUAGE, "Running")), quota)
    assert len(users.pods(VISION, "Running")) == n_gpus - quota


def _is_told_why(site: Site, namespace: str, app: str) -> bool:
    """Whether some pod of the workload has an event with a reason of docs/reasons.md."""
    words = {"InsufficientGpu", "OverFairShare", "OverLimit", "GangIncomplete"}
    return any(words & site.reasons(namespace, each) for each in site.pods(namespace, app=app)[:3])
