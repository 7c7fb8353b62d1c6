"""`ballast shadow` on a real control plane that the stock kube-scheduler runs."""

import asyncio
import json
import re
import shlex
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from extender.__main__ import main
from tests.integration.web.browser import CHROMIUM, open_page
from tests.support.controlplane.handles import Cluster, wait_for
from tests.support.overlays import MANIFESTS

pytestmark = [
    pytest.mark.controlplane,
    pytest.mark.parametrize("cluster", [None], indirect=True, ids=["stock"]),
]

PAGE = MANIFESTS.parent / "docs" / "shadow.md"
WATCHER = "shadow-watcher"
SEEN_S = 90.0
SPACES = ("space-a", "space-b", "space-c")
QUEUES = """
apiVersion: ballast.dev/v1alpha1
kind: GpuDepartment
metadata: {name: research}
---
apiVersion: ballast.dev/v1alpha1
kind: GpuProject
metadata: {name: vision}
spec:
  department: research
  namespaces: [space-a]
  nodePools: [{name: default, gpu: {quota: 4}}]
---
apiVersion: ballast.dev/v1alpha1
kind: GpuProject
metadata: {name: search}
spec:
  department: research
  namespaces: [space-b, space-c]
  nodePools: [{name: default, gpu: {quota: 0}}]
"""


def job(name: str, n_pods: int, gpus: int = 1) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": str(gpus), "cpu": "1", "memory": "1Gi"}
    container = {"name": "main", "image": "example", "resources": {"limits": limits}}
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"parallelism": n_pods, "completions": n_pods, "template": {"spec": spec}},
    }


def pods(cluster: Cluster, space: str) -> list[Any]:
    found: list[Any] = cluster.control_plane.admin.get(f"/api/v1/namespaces/{space}/pods")["items"]
    return found


def has_bound(cluster: Cluster, space: str, n_pods: int) -> bool:
    return sum(bool(each["spec"].get("nodeName")) for each in pods(cluster, space)) == n_pods


def are_settled(cluster: Cluster) -> bool:
    """Whether all pods that have a node run, and kube-scheduler has said of the others that none
    does."""
    listed = [each for space in SPACES for each in pods(cluster, space)]
    told = {
        (bool(each["spec"].get("nodeName")), each["status"]["phase"], *_waits(each))
        for each in listed
    }
    return told == {(True, "Running"), (False, "Pending", "Unschedulable")}


def _waits(pod: Any) -> list[str]:
    conditions = pod["status"].get("conditions", ())
    told = {each["type"]: each for each in conditions}.get("PodScheduled", {})
    return [told["reason"]] if "reason" in told else []


def versions(cluster: Cluster) -> dict[str, str]:
    """Version of every pod by its UID."""
    listed = [each for space in SPACES for each in pods(cluster, space)]
    return {each["metadata"]["uid"]: each["metadata"]["resourceVersion"] for each in listed}


@pytest.fixture
def kubeconfig(cluster: Cluster) -> Iterator[str]:
    """Two nodes of four cards. space-a has taken six, space-b two, and space-c came late; the
    login has the rights that the page lists."""
    plane = cluster.control_plane
    cluster.add_gpu_nodes(2, 4)
    for space, name, n_pods in (("space-a", "train", 6), ("space-b", "serve", 2)):
        plane.make_namespace(space)
        plane.admin.post(f"/apis/batch/v1/namespaces/{space}/jobs", job(name, n_pods))
        wait_for(partial(has_bound, cluster, space, n_pods), SEEN_S, f"bound pods in {space}")
    plane.make_namespace("space-c")
    plane.admin.post("/apis/batch/v1/namespaces/space-c/jobs", job("late", 2))
    wait_for(lambda: len(pods(cluster, "space-c")) == 2, SEEN_S, "two pods that wait")
    wait_for(lambda: are_settled(cluster), SEEN_S, "what kwok and kube-scheduler say of the pods")
    (role,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    name = yaml.safe_load(role)["metadata"]["name"]
    cluster.kubectl("apply", "-f-", stdin=role)
    cluster.kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}",
                    f"--user={WATCHER}")  # fmt: skip
    try:
        yield plane.kubeconfig_for(WATCHER, ())
    finally:
        cluster.kubectl("delete", "clusterrolebinding,clusterrole", name)


def shadow(kubeconfig: str, *args: str) -> Result:
    done = CliRunner().invoke(
        main, ("shadow", *args), env={"KUBECONFIG": kubeconfig, "COLUMNS": "200"}
    )
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def report(kubeconfig: str, *args: str) -> Any:
    done = shadow(kubeconfig, "-o", "json", *args)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def said_by_watcher(cluster: Cluster) -> list[dict[str, Any]]:
    lines = cluster.control_plane.audit_log.read_text(encoding="utf-8").splitlines()
    events = (json.loads(line) for line in lines)
    return [each for each in events if each["user"].get("username") == WATCHER]


def n_looks(cluster: Cluster) -> int:
    """Each look asks for the work that Kueue holds back, first in its newest version."""
    asked = (each["requestURI"] for each in said_by_watcher(cluster))
    return sum("/kueue.x-k8s.io/v1beta2/workloads" in each for each in asked)


@pytest.mark.timeout(300)
def test_report_on_a_cluster_that_the_stock_scheduler_runs(
    cluster: Cluster, kubeconfig: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = versions(cluster)

    # A project for each namespace: the late one is owed as much as it asks for.
    told = report(kubeconfig)
    held = {each["project"]: (each["held"], each["ballastHeld"]) for each in told["projects"]}
    assert held == {
        "space-a": ("6.0", "4.0"),
        "space-b": ("2.0", "2.0"),
        "space-c": ("0.0", "2.0"),
    }
    assert sorted(each["project"] for each in told["stops"]) == ["space-a", "space-a"]
    assert {each["outcome"] for each in told["work"]} == {"waits"}
    assert [each["taken"] for each in told["work"]] == [{"space-a": 1}, {"space-a": 1}]
    assert any("how long they run" in each["text"] for each in told["notKnown"])

    # With queues: the quota of vision is 4, and each has half of the other 4 GPUs.
    queues = tmp_path / "queues.yaml"
    queues.write_text(QUEUES, encoding="utf-8")
    given = report(kubeconfig, "--queues", str(queues))
    assert {each["project"]: each["ballastHeld"] for each in given["projects"]} == {
        "vision": "6.0",
        "search": "2.0",
    }

    _check_the_page(kubeconfig, tmp_path)
    _run_the_commands_of_the_documentation(kubeconfig, tmp_path, monkeypatch)

    asked = said_by_watcher(cluster)
    assert asked
    assert {each["verb"] for each in asked} <= {"list", "watch"}
    assert versions(cluster) == before


def _check_the_page(kubeconfig: str, tmp_path: Path) -> None:
    """The report as a browser shows it."""
    page = tmp_path / "report.html"
    done = shadow(kubeconfig, "--html", str(page), "--minutes", "0.05", "--every", "1")
    assert done.exit_code == 0, done.stderr
    (n_looks,) = re.findall(r"\b(\d+) looks\b", done.stdout)
    assert 2 <= int(n_looks) <= 4
    assert "Ballast would start 2 of them" in done.stdout
    if CHROMIUM is None:
        pytest.skip("no Chromium")
    shown, console = open_page(f"file://{page}", tmp_path)
    assert console == ""
    assert "at the first look" in shown
    assert "space-c" in shown


def _run_the_commands_of_the_documentation(
    kubeconfig: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the page, with an hour made short."""
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    commands = [shlex.split(line, comments=True) for line in text.splitlines()
                if line.startswith("ballast shadow")]  # fmt: skip
    assert len(commands) == 5
    for words in commands:
        args = ["0.03" if each == "60" else each for each in words[2:]]
        done = shadow(kubeconfig, *args)
        assert done.exit_code == 0, (words, done.stderr)


@pytest.mark.timeout(300)
async def test_window_follows_what_the_stock_scheduler_does(
    cluster: Cluster, kubeconfig: str
) -> None:
    before = n_looks(cluster)
    looking = asyncio.to_thread(report, kubeconfig, "--minutes", "0.4", "--every", "1")
    task = asyncio.ensure_future(looking)
    await asyncio.to_thread(
        wait_for, lambda: n_looks(cluster) > before + 2, SEEN_S, "the first looks"
    )
    job_path = "/apis/batch/v1/namespaces/space-a/jobs/train?propagationPolicy=Background"
    await asyncio.to_thread(cluster.control_plane.admin.delete, job_path)
    told = await task
    assert told["looks"] > 3
    assert {each["outcome"] for each in told["work"]} == {"started"}
    assert all(each["ballastAtFirstLook"] for each in told["work"])
    held = [each["held"] for each in told["series"]]
    assert (held[0], held[-1]) == ("8", "4")


def test_login_that_may_not_list_is_told_so_in_one_sentence(cluster: Cluster) -> None:
    kubeconfig = cluster.control_plane.kubeconfig_for("nobody-at-all", ())
    done = shadow(kubeconfig)
    assert done.exit_code == 1
    assert 'cannot list resource "nodes"' in done.stderr
    assert "Traceback" not in done.stderr
