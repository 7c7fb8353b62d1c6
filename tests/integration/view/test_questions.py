"""Questions of tenants and administrators, answered through the real API server."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.integration.cycle.two_projects import Scene
from tests.support.auditor import Auditor
from tests.support.controlplane.handles import Cluster
from tests.support.installation import Program

ROOT = "/apis/view.ballast.dev/v1alpha1"


class Asking(Scene):
    """The scene with `ballast view` beside it, and a tenant of team-a."""

    view: Program
    tenant: str

    async def ballast(self, *args: str, kubeconfig: str = "") -> subprocess.CompletedProcess[str]:
        """The command as people call it; the administrator unless said otherwise."""
        env = os.environ | {"KUBECONFIG": kubeconfig or self.plane.kubeconfig, "COLUMNS": "200"}
        return await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "extender", *args],
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    async def answer(self, *args: str, kubeconfig: str = "") -> dict[str, Any]:
        """What `-o json` prints."""
        done = await self.ballast(*args, "-o", "json", kubeconfig=kubeconfig)
        assert done.stdout, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told


@pytest.fixture
async def scene(cluster: Cluster, audited: Auditor) -> AsyncIterator[Asking]:
    """Two nodes of two cards; team-a and team-b may have two each. Ends at rest."""
    async with Asking.open(cluster, n_nodes=2, cards=2) as opened:
        assert isinstance(opened, Asking)
        opened.view = opened.installation.view()
        opened.tenant = opened.plane.kubeconfig_for("ann", ())
        cluster.kubectl(
            "create", "rolebinding", "ann", "--clusterrole=view", "--user=ann", "-n", "team-a"
        )
        try:
            await asyncio.to_thread(opened.view.start)
            await opened.until(lambda: is_available(opened), "the APIService to be available")
            yield opened
        finally:
            opened.view.end()
            cluster.kubectl("delete", "apiservice", "v1alpha1.view.ballast.dev")
        await audited.finish()


def is_available(scene: Scene) -> bool:
    path = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.view.ballast.dev"
    conditions = scene.admin.get(path).get("status", {}).get("conditions", [])
    return any((each["type"], each["status"]) == ("Available", "True") for each in conditions)


async def test_questions_of_a_tenant_and_of_an_administrator(scene: Asking) -> None:
    scene.submit_job("team-b", "theirs", 2, 1000)
    await scene.until_bound("team-b", 2)
    scene.submit_job("team-a", "first", 2, 1000)
    await scene.until_bound("team-a", 2)
    scene.submit_job("team-a", "second", 1, 1000)
    scene.submit_job("team-b", "more", 1, 1000)

    def told() -> list[str]:
        listed = scene.admin.get("/api/v1/namespaces/team-a/pods")["items"]
        pods = [each for each in listed if each["metadata"]["labels"]["job-name"] == "second"]
        return [
            each["reason"]
            for pod in pods
            for each in pod["status"].get("conditions", ())
            if each["type"] == "ballast.dev/Placed"
        ]

    await scene.until(lambda: told() == ["OverFairShare"], "the controller's own reason")

    await _ask_as_tenant(scene)
    await _ask_as_administrator(scene)


async def _ask_as_tenant(scene: Asking) -> None:
    # With Kubernetes' role `view` in its namespace: why it waits.
    done = await scene.ballast("why", "job/second", "-n", "team-a", kubeconfig=scene.tenant)
    assert done.returncode == 3, done.stderr
    assert "WAITS" in done.stdout
    assert "the controller says the same" in done.stdout
    assert "fair share" in done.stdout
    found = await scene.answer("why", "second", "-n", "team-a", kubeconfig=scene.tenant)
    assert (found["state"], found["reason"]) == ("waits", "OverFairShare")
    assert found.get("agrees", True)
    assert found["queue"]["held"] == "2"
    assert {each["name"] for each in found["checks"]} >= {"room now", "reclaim", "preemption"}
    runs = await scene.ballast("why", "first", "-n", "team-a", kubeconfig=scene.tenant)
    assert runs.returncode == 0

    # It sees its own work by name, that of others by project and size, and no other namespace.
    listed = await scene.answer("queue", "-n", "team-a", kubeconfig=scene.tenant)
    lines = {(each["project"], bool(each.get("workload"))) for each in listed["items"]}
    assert lines == {("team-a", True), ("team-b", False)}
    for words in (("queue", "-A"), ("queue", "-n", "team-b"), ("why", "more", "-n", "team-b")):
        refused = await scene.ballast(*words, kubeconfig=scene.tenant)
        assert refused.returncode == 1
        assert "forbidden" in refused.stderr
    refused = await scene.ballast("whatif", "--quota", "team-a=3", kubeconfig=scene.tenant)
    assert "forbidden" in refused.stderr

    # Shares are for all who have a login.
    shares = await scene.answer("shares", kubeconfig=scene.tenant)
    held = {each["queue"]: each["held"] for each in shares["items"]}
    assert held == {"department/research": "4", "team-a": "2", "team-b": "2"}


async def _ask_as_administrator(scene: Asking) -> None:
    # What would happen if; nothing is changed by it.
    before = scene.get("gpuprojects")
    changed = await scene.ballast("whatif", "--quota", "team-a=3", "--quota", "team-b=1")
    assert changed.returncode == 1, changed.stderr
    assert "stops" in changed.stdout
    assert "team-a/second" in changed.stdout
    node = scene.admin.get("/api/v1/nodes")["items"][0]["metadata"]["name"]
    more = await scene.answer("whatif", "--add-nodes", f"{node}=1")
    starts = [each["workload"] for each in more["status"]["changes"] if each["what"] == "starts"]
    assert more["status"].get("stops", 0) == 0, more
    assert sorted(each.partition("/")[0] for each in starts) == ["team-a", "team-b"], more
    wrong = await scene.ballast("whatif", "--drain", "no-such-node")
    assert "there is no GPU node 'no-such-node'" in wrong.stderr
    specs = [{each["metadata"]["name"]: each["spec"]} for each in before["items"]]
    after = scene.get("gpuprojects")["items"]
    assert specs == [{each["metadata"]["name"]: each["spec"]} for each in after]

    # kubectl reads the API by itself.
    assert "explanations" in scene.cluster.kubectl("api-resources", "--api-group=view.ballast.dev")
    missing = await scene.ballast("why", "nothing", "-n", "team-a")
    assert missing.returncode == 1
    assert 'is called "nothing"' in missing.stderr
