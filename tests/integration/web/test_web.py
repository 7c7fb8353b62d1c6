"""`ballast web` on the real control plane, as a tenant and as an administrator, and in a browser.

BALLAST_PICTURES=FOLDER writes the screenshots of the documentation there.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml

from tests.integration.cycle.two_projects import Scene
from tests.integration.view.test_questions import with_view
from tests.integration.web.browser import CHROMIUM, open_page
from tests.support.auditor import Auditor
from tests.support.controlplane.handles import Cluster

PAGES = ("mine", "project/team-a", "usage", "queue", "shares", "cluster", "whatif", "evictions")
START_S = 90


@pytest.fixture
async def scene(cluster: Cluster, audited: Auditor) -> AsyncIterator[Scene]:
    """Four nodes of four cards with `ballast view`; team-a and team-b may have eight each."""
    async with Scene.open(cluster, n_nodes=4, cards=4) as opened:
        cluster.kubectl(
            "create", "rolebinding", "ann", "--clusterrole=view", "--user=ann", "-n", "team-a"
        )
        async with with_view(opened):
            yield opened
        await audited.finish()


@asynccontextmanager
async def pages(kubeconfig: str, namespace: str, *options: str) -> AsyncIterator[str]:
    """The URL that `ballast web` prints; the command ends with 0 when it is told to."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "extender", "web", "-n", namespace, "--kubeconfig", kubeconfig,
        *options,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stdout
    try:
        line = await asyncio.wait_for(process.stdout.readline(), START_S)
        assert line.startswith(b"http://127.0.0.1:"), line
        yield line.decode().strip()
    finally:
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), START_S) == 0


async def fetch(url: str, **options: object) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session:
        method = "POST" if "data" in options else "GET"
        async with session.request(method, url, **options) as answer:  # type: ignore[arg-type]
            return answer.status, await answer.text()


async def test_pages_show_each_user_what_rbac_allows(scene: Scene, tmp_path: Path) -> None:
    """team-b borrows; team-a takes back its quota; both want more."""
    scene.submit_job("team-b", "theirs", 12, 1000)
    await scene.until_bound("team-b", 12)
    scene.submit_job("team-a", "first", 6, 1000)
    await scene.until_bound("team-a", 6)
    scene.submit_job("team-a", "part", 3, 250)
    scene.submit_job("team-a", "second", 4, 1000)
    scene.submit_job("team-b", "more", 3, 1000)
    scene.submit_job("team-b", "huge", 1, 8000)
    await scene.until(
        lambda: any(reason == "Reclaimed" for reason, _ in scene.events("team-b")), "a reclaim"
    )
    await scene.until_decided(2)

    # An eviction as the controller tells it, for a pod that is gone and never had a node.
    gone = {
        "metadata": {"name": "gone.1", "namespace": "team-a"},
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod", "name": "gone", "namespace": "team-a", "uid": "gone",
        },
        "reason": "WaitingForVictims",
        "message": "1 pod leaves for it: other",
        "type": "Normal",
        "reportingComponent": "ballast-controller",
        "reportingInstance": "test",
        "action": "Schedule",
        "eventTime": "2026-01-01T00:00:00.000000Z",
    }  # fmt: skip
    scene.admin.post("/api/v1/namespaces/team-a/events", gone)

    tenant = scene.plane.kubeconfig_for("ann", ())
    async with pages(tenant, "team-a") as url:
        await _as_tenant(url)
    await _behind_a_proxy(scene, tmp_path)
    async with pages(scene.plane.kubeconfig, "team-a") as url:
        await _as_administrator(url)
        if CHROMIUM is None:
            pytest.skip("no chromium: pages were not opened in a browser (apt install chromium)")
        await _in_a_browser(url, tmp_path)


async def _as_tenant(url: str) -> None:
    status, text = await fetch(url)
    assert status == 200
    assert "team-a/second" in text
    assert "team-b/" not in text
    status, text = await fetch(f"{url}workload/team-a/second")
    assert (status, "OverFairShare" in text) == (200, True)
    for path in ("queue?all=1", "queue?namespace=team-b", "workload/team-b/theirs", "cluster",
                 "evictions?namespace=team-b", "evictions?all=1"):  # fmt: skip
        status, text = await fetch(url + path)
        assert status == 403, path
        assert "forbidden" in text
        assert "team-b/theirs" not in text
    status, text = await fetch(f"{url}whatif", data={"project": "team-a"})
    assert (status, "forbidden" in text) == (403, True)
    status, text = await fetch(f"{url}shares")
    assert (status, "team-b" in text) == (200, True)
    # Another web site that has its name lead to us gets nothing.
    status, _ = await fetch(url, headers={"Host": "rebound.example"})
    assert status == 421


async def _behind_a_proxy(scene: Scene, work: Path) -> None:
    """As in a cluster: the program has no credentials, and each request brings a token."""
    kubectl = scene.cluster.kubectl
    kubectl("create", "serviceaccount", "eve", "-n", "team-a")
    kubectl("create", "rolebinding", "eve", "--clusterrole=view", "--serviceaccount=team-a:eve",
            "-n", "team-a")  # fmt: skip
    config = yaml.safe_load(Path(scene.plane.kubeconfig).read_text())
    for user in config["users"]:
        user["user"] = {}
    anonymous = work / "anonymous.kubeconfig"
    anonymous.write_text(yaml.safe_dump(config))
    login = yaml.safe_load(
        Path(scene.plane.kubeconfig_for_service_account("team-a", "eve")).read_text()
    )
    token = {"Authorization": f"Bearer {login['users'][0]['user']['token']}"}
    admin = {"Impersonate-User": "root", "Impersonate-Group": "system:masters"}
    async with pages(str(anonymous), "", "--behind-proxy") as url:
        status, text = await fetch(f"{url}mine", headers=token)
        assert (status, "team-a/second" in text) == (200, True), text
        assert "team-b/" not in text
        status, text = await fetch(f"{url}project/team-a", headers=token)
        assert (status, "GPUs waiting" in text) == (200, True)
        # Behind a proxy no kubeconfig has a namespace.
        for path in ("queue", "evictions"):
            status, text = await fetch(url + path, headers=token)
            assert (status, 'value="team-a"' in text) == (200, True), path
        for path in ("queue?all=1", "queue?namespace=team-b", "mine?namespace=team-b", "cluster",
                     "workload/team-b/theirs", "evictions?all=1"):  # fmt: skip
            # Words of impersonation that a user adds do not reach the API server.
            for headers in (token, token | admin):
                status, text = await fetch(url + path, headers=headers)
                assert (status, "team-b/theirs" in text) == (403, False), path
        status, text = await fetch(f"{url}project/team-b", headers=token)
        assert (status, "forbidden" in text, "team-b/theirs" in text) == (200, True, False)
        for headers in ({}, admin, {"X-Forwarded-User": "root"}, {"Authorization": "Bearer none"}):
            status, text = await fetch(f"{url}shares", headers=headers)
            assert status == 401
            assert "team-" not in text


async def _as_administrator(url: str) -> None:
    status, text = await fetch(f"{url}queue?all=1")
    assert status == 200
    assert "team-a/second" in text
    assert "team-b/" in text
    status, text = await fetch(f"{url}cluster")
    assert (status, "4 nodes, 16 cards" in text) == (200, True)
    assert "team-a/first-" in text
    status, text = await fetch(f"{url}evictions?all=1")
    assert (status, "Reclaimed" in text) == (200, True)
    assert "of another project" in text
    assert "leaves for it" in text or "leave for it" in text
    assert "<b>started</b>" in text
    assert "Pods were evicted for 1 workload that never started" in text
    form = {"quota:team-a": "12", "was:team-a": "8", "quota:team-b": "4", "was:team-b": "8"}
    status, text = await fetch(f"{url}whatif", data=form)
    assert status == 200
    assert "stops" in text
    assert "team-a/second" in text
    status, text = await fetch(f"{url}workload/team-a/nothing")
    assert (status, "has the name" in text) == (404, True)


async def _in_a_browser(url: str, work: Path) -> None:
    for page in (*PAGES, "workload/team-a/second"):
        document, console = await asyncio.to_thread(open_page, url + page, work)
        assert console == "", page
        assert "<h1>" in document
        # The script was allowed to run.
        assert '<body class="scripted">' in document, page
    folder = Path(os.environ.get("BALLAST_PICTURES", work))
    for name, page, size in (
        ("mine", "mine", "1280,930"),
        ("queue", "queue?all=1", "1400,710"),
        ("why", "workload/team-a/second", "1280,980"),
        ("cluster", "cluster", "1280,520"),
        ("shares", "shares", "1280,420"),
    ):
        picture = folder / f"web-{name}.png"
        dark = name == "cluster"
        await asyncio.to_thread(open_page, url + page, work, picture=picture, size=size, dark=dark)
        assert 5_000 < picture.stat().st_size < 250_000, name
