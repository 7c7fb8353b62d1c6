"""Queries of tenants and administrators, answered through the real API server."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from extender.__main__ import main
from tests.integration.cycle.claims import bind_claim, open_claim, volume, with_claim
from tests.integration.cycle.two_projects import Scene
from tests.support import workloads
from tests.support.auditor import Auditor
from tests.support.controlplane.handles import Cluster
from tests.support.installation import Program
from tests.support.webhook_config import webhooks_in_force

ROOT = "/apis/view.ballast.dev/v1alpha1"
REGISTRATION = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.view.ballast.dev"


@dataclass(slots=True, frozen=True)
class Ended:
    """What a command printed, and how it ended."""

    returncode: int
    stdout: str
    stderr: str


class Asking(Scene):
    """The scene with a tenant of team-a, who asks `ballast view`."""

    tenant: str
    editor: str

    async def ballast(self, *args: str, kubeconfig: str = "") -> "Ended":
        """The command as people call it; the administrator unless said otherwise."""
        return await asyncio.to_thread(self._invoke, args, kubeconfig or self.plane.kubeconfig)

    def _invoke(self, args: tuple[str, ...], kubeconfig: str) -> "Ended":
        """In this process, which saves half a second of CPU for each of some fifty commands."""
        done = CliRunner().invoke(main, args, env={"KUBECONFIG": kubeconfig, "COLUMNS": "200"})
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Ended(done.exit_code, done.stdout, done.stderr)

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
        opened.tenant = opened.plane.kubeconfig_for("ann", ())
        opened.editor = opened.plane.kubeconfig_for("eve", ())
        for user, role in (("ann", "view"), ("eve", "edit")):
            cluster.kubectl(
                "create", "rolebinding", user, f"--clusterrole={role}", f"--user={user}",
                "-n", "team-a",
            )  # fmt: skip
        async with with_view(opened):
            yield opened
        await audited.finish()


@asynccontextmanager
async def with_view(scene: Scene) -> AsyncIterator[Program]:
    """`ballast view` beside the scene, once the API server asks it."""
    view = scene.installation.view()
    try:
        await asyncio.to_thread(view.start)
        await scene.until(lambda: is_available(scene), "the APIService to be available")
        yield view
    finally:
        view.end()
        scene.cluster.kubectl("delete", "apiservice", "v1alpha1.view.ballast.dev")


def is_available(scene: Scene) -> bool:
    conditions = scene.admin.get(REGISTRATION).get("status", {}).get("conditions", [])
    return any((each["type"], each["status"]) == ("Available", "True") for each in conditions)


async def test_registration_that_a_tool_replaced_gets_its_ca_again(scene: Asking) -> None:
    scene.submit_job("team-a", "first", 1, 1000)
    await scene.until_bound("team-a", 1)
    registered = scene.admin.get(REGISTRATION)
    ca = registered["spec"].pop("caBundle")
    scene.cluster.kubectl("replace", "-f-", stdin=json.dumps(registered))
    await scene.until(
        lambda: scene.admin.get(REGISTRATION)["spec"].get("caBundle") == ca, "the CA again"
    )
    # It may still be called available from the time before.
    await scene.until(
        lambda: asyncio.run(scene.ballast("shares")).returncode == 0, "an answer of the view"
    )
    assert is_available(scene)


@pytest.mark.timeout(300)
async def test_questions_of_a_tenant_and_of_an_administrator(scene: Asking, tmp_path: Path) -> None:
    scene.submit_job("team-b", "theirs", 2, 1000)
    await scene.until_bound("team-b", 2)
    scene.submit_job("team-a", "first", 2, 1000)
    await scene.until_bound("team-a", 2)
    # The view reads the claims of work that waits, as the controller does.
    scene.admin.post("/api/v1/persistentvolumes", volume("disk", "gpu-node-0000", "gpu-node-0001"))
    bind_claim(scene, "data", "disk")
    second = with_claim(workloads.job("second", "team-a", 1, 1000), "data")
    scene.admin.post("/apis/batch/v1/namespaces/team-a/jobs", second)
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
    await _list_as_kubectl_does(scene)
    await _explain_the_kinds(scene)
    await _decide_on_a_snapshot(scene, tmp_path)
    await _hold_and_resume(scene)
    await _run_a_job(scene, tmp_path)
    await _convert(scene, tmp_path)
    await _ask_of_a_claim_without_a_class(scene)
    await _ask_of_refused_pods(scene)
    await _ask_without_a_controller(scene)


async def _explain_the_kinds(scene: Asking) -> None:
    """kubectl explain describes every kind of the view, with its fields."""
    fields = {
        "explanations": "waysOut\t<[]WayOut>",
        "explanations.forecast": "earliest\t<string>",
        "queues": "position\t<integer>",
        "shares": "fairShare\t<string>",
        "simulations.spec": "addNodes\t<[]AddedNodes>",
        "snapshots": "scenario\t<Object>",
    }
    for what, field in fields.items():
        assert field in await asyncio.to_thread(scene.cluster.kubectl, "explain", what)


def _named(resource: str) -> list[str]:
    """A resource of the view, and the name of one object where there is one."""
    plural, _, name = resource.partition("/")
    return [f"{plural}.view.ballast.dev", *([name] if name else [])]


async def _ask_as_tenant(scene: Asking) -> None:
    # With Kubernetes' role `view` in its namespace: why it waits.
    done = await scene.ballast("why", "job/second", "-n", "team-a", kubeconfig=scene.tenant)
    assert done.returncode == 3, done.stderr
    assert "WAITS" in done.stdout
    assert "the controller says the same" in done.stdout
    assert "fair share" in done.stdout
    assert "FORECAST  no forecast: pods with" in done.stdout
    found = await scene.answer("why", "second", "-n", "team-a", kubeconfig=scene.tenant)
    assert (found["state"], found["reason"]) == ("waits", "OverFairShare")
    assert found.get("agrees", True)
    assert found["queue"]["held"] == "2"
    assert {each["name"] for each in found["checks"]} >= {"room now", "reclaim", "preemption"}
    runs = await scene.ballast("why", "first", "-n", "team-a", kubeconfig=scene.tenant)
    assert runs.returncode == 0

    # kubectl itself reads the answers.
    for resource, kind in (("queues", "List"), ("explanations/second", "Explanation")):
        text = scene.cluster.kubectl(
            "get", "-n", "team-a", "-o", "json", *_named(resource), kubeconfig=scene.tenant
        )
        assert json.loads(text)["kind"] == kind
        assert "OverFairShare" in text

    # It sees its own work by name, that of others by project and size, and no other namespace.
    listed = await scene.answer("queue", "-n", "team-a", kubeconfig=scene.tenant)
    lines = {(each["project"], bool(each.get("workload"))) for each in listed["items"]}
    assert lines == {("team-a", True), ("team-b", False)}
    # Nothing states how long it runs, so nothing is foretold; of others nothing is said at all.
    said = {each["project"]: each.get("forecast", {}).get("word") for each in listed["items"]}
    assert said == {"team-a": "no forecast", "team-b": None}
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


async def _ask_of_refused_pods(scene: Asking) -> None:
    """A controller's event says why; the tenant's own login reads it."""
    about = {"kind": "Job", "name": "typed", "namespace": "team-a", "apiVersion": "batch/v1"}
    event = {
        "metadata": {"name": "typed.1", "namespace": "team-a"},
        "involvedObject": about,
        "reason": "FailedCreate",
        "message": "denied: gpu-memory: '10Gi'",
        "type": "Warning",
    }
    scene.admin.post("/api/v1/namespaces/team-a/events", event)
    said = await scene.ballast("why", "job/typed", "-n", "team-a", kubeconfig=scene.tenant)
    assert said.returncode == 1
    assert "job/typed could not create a pod " in said.stderr
    assert said.stderr.endswith("denied: gpu-memory: '10Gi'\n")
    unknown = await scene.ballast("why", "nothere", "-n", "team-a", kubeconfig=scene.tenant)
    assert "no live pod that Ballast schedules" in unknown.stderr


async def _ask_of_a_claim_without_a_class(scene: Asking) -> None:
    open_claim(scene, "scratch", "fast")
    path, writer = "/api/v1/namespaces/team-a/pods", workloads.bare_pod("writer", "team-a", 500)
    scene.admin.post(path, with_claim(writer, "scratch"))

    def said() -> str:
        return asyncio.run(scene.ballast("why", "writer", "-n", "team-a")).stdout

    await scene.until(lambda: "StorageClass fast does not exist" in said(), "the reason")
    scene.cluster.kubectl("delete", "pod", "writer", "-n", "team-a", "--now")


async def _ask_without_a_controller(scene: Asking) -> None:
    """Kubernetes' clients print the warning, too."""

    def is_warned() -> bool:
        told = asyncio.run(scene.ballast("shares"))
        return "Warning: no Ballast controller has led since 20" in told.stderr

    control = scene.installation.control
    control.kill()
    await scene.until(is_warned, "a warning that no controller leads")
    raw = scene.cluster.kubectl("get", "--raw", f"{ROOT}/shares")
    assert json.loads(raw)["asOf"]["warning"].endswith("nothing is evicted until one does")
    control.start()
    await scene.until(lambda: not is_warned(), "an answer without the warning")


async def _ask_as_administrator(scene: Asking) -> None:
    # What would happen if; nothing is changed by it.
    before = scene.get("gpuprojects")
    changed = await scene.ballast("whatif", "--quota", "team-a=3", "--quota", "team-b=1")
    assert changed.returncode == 5, changed.stderr
    assert "stops" in changed.stdout
    assert "team-a/second" in changed.stdout
    # The work of the pod that stops is lost: it says nothing of saves.
    assert re.search(r"lost 0 -> 0\.[1-9] GPU-hours", changed.stdout), changed.stdout
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
    assert 'the owner "nothing"' in missing.stderr


async def _list_as_kubectl_does(scene: Asking) -> None:
    """kubectl's flags, and what a tenant and an administrator see of what holds GPUs."""
    names = await scene.ballast("queue", "-n", "team-a", "-o", "name", kubeconfig=scene.tenant)
    assert sorted(names.stdout.split()) == ["gpuproject.ballast.dev/team-b", *_pods(scene)]
    bare = await scene.ballast("queue", "-A", "--no-headers")
    assert not bare.stdout.startswith("POS")
    assert len(bare.stdout.splitlines()) == 2
    chosen = await scene.answer("queue", "-A", "-l", "job-name=second")
    assert [each["project"] for each in chosen["items"]] == ["team-a"]
    wide = await scene.ballast("queue", "-A", "-o", "wide")
    assert "MESSAGE" in wide.stdout
    assert "fair share" in wide.stdout
    # --as: the administrator sees what the tenant may see.
    refused = await scene.ballast(
        "queue", "-A", "--as", "ann", "--as-group", "system:authenticated"
    )
    assert "forbidden" in refused.stderr
    again = await scene.ballast("shares", "--as", "ann", "--as-group", "system:authenticated")
    assert again.returncode == 0, again.stderr

    projects = await scene.answer("top", kubeconfig=scene.tenant)
    held_by = {each["name"]: float(each["allocated"]) for each in projects["items"]}
    assert held_by == {"research": 4, "team-a": 2, "team-b": 2}
    pods = await scene.answer("top", "pods", "-n", "team-a", kubeconfig=scene.tenant)
    assert [each["held"] for each in pods["items"]] == ["1", "1"]
    hidden = await scene.ballast("top", "nodes", kubeconfig=scene.tenant)
    assert "forbidden" in hidden.stderr
    nodes = await scene.answer("top", "nodes")
    assert [(each["held"], each["free"], each["pods"]) for each in nodes["items"]] == [
        ("2", "0", 2),
        ("2", "0", 2),
    ]
    gpus = await scene.ballast("top", "gpus")
    assert len(gpus.stdout.splitlines()) == 5

    told = await scene.answer("history", "job/first", "-n", "team-a", kubeconfig=scene.tenant)
    happened = [each["what"] for each in told["items"]]
    assert happened.count("Created") == 2
    assert happened.count("Started") == 2
    none = await scene.answer("history", "-n", "team-a", "--evictions", kubeconfig=scene.tenant)
    assert none["items"] == []


def _pods(scene: Asking) -> list[str]:
    """What waits in team-a, as kubectl names it."""
    listed = scene.admin.get("/api/v1/namespaces/team-a/pods")["items"]
    return sorted(
        f"pod/{each['metadata']['name']}" for each in listed if not each["spec"].get("nodeName")
    )


async def _decide_on_a_snapshot(scene: Asking, folder: Path) -> None:
    """A file of now gives the answers that the cluster gives."""
    refused = await scene.ballast("snapshot", kubeconfig=scene.tenant)
    assert "forbidden" in refused.stderr
    taken = await scene.ballast("snapshot")
    assert taken.returncode == 0, taken.stderr
    file = folder / "now.yaml"
    file.write_text(taken.stdout)
    shown = await scene.ballast("scenario", "show", str(file), "-o", "json")
    assert shown.returncode == 0, shown.stderr
    (cycle,) = json.loads(shown.stdout)[0]["cycles"]
    assert (cycle["placed"], cycle["leaving"]) == ([], [])
    (second,) = (name.removeprefix("pod/") for name in _pods(scene))
    asked = await scene.answer("why", second, "-n", "team-a")
    (said,) = (line for line in cycle["waiting"] if second in line)
    assert asked["reason"] in said, (asked, said)
    figures = {each["queue"]: each for each in cycle["shares"] if each["resource"] == "GPU"}
    shares = await scene.answer("shares")
    for each in shares["items"]:
        assert float(figures[each["queue"]]["allocated"]) == float(each["held"]), (figures, each)
    same = await scene.ballast(
        "whatif", "--file", str(file), "--quota", "team-a=3", "--quota", "team-b=1"
    )
    assert same.returncode == 5, same.stderr
    assert "stops" in same.stdout
    days = await scene.ballast("simulate", str(file), "--days", "0.01")
    assert days.returncode == 0, days.stderr

    hashed = await scene.ballast("snapshot", "--anonymous", "-o", "json")
    assert not re.search(r"team-a|team-b|second|research", hashed.stdout), hashed.stdout
    (folder / "hashed.json").write_text(hashed.stdout)
    shown = await scene.ballast("scenario", "show", str(folder / "hashed.json"), "-o", "json")
    (cycle,) = json.loads(shown.stdout)[0]["cycles"]
    assert (cycle["placed"], len(cycle["waiting"])) == ([], 2)


async def _hold_and_resume(scene: Asking) -> None:
    """Held work does not start although there is room, and then starts in its turn."""
    refused = await scene.ballast("hold", "job/second", "-n", "team-a", kubeconfig=scene.tenant)
    assert "forbidden" in refused.stderr
    held = await scene.ballast("hold", "job/second", "-n", "team-a", kubeconfig=scene.editor)
    assert held.returncode == 0, held.stderr
    assert held.stdout == f"{_pods(scene)[0]} held\n"

    async def reason() -> str:
        told = await scene.answer("why", "second", "-n", "team-a", kubeconfig=scene.tenant)
        return str(told["reason"])

    await scene.until(lambda: asyncio.run(reason()) == "HeldByOwner", "why to say who holds it")
    scene.cluster.kubectl("delete", "job", "first", "-n", "team-a")
    await scene.until_bound("team-a", 0)
    await scene.until_decided(3)
    assert not (await scene.look("team-a")).bound
    missing = await scene.ballast("hold", "first", "-n", "team-a", kubeconfig=scene.editor)
    assert missing.returncode == 1
    assert "nothing called first waits" in missing.stderr
    resumed = await scene.ballast("resume", "-l", "job-name=second", "-n", "team-a",
                                  kubeconfig=scene.editor)  # fmt: skip
    assert resumed.stdout.endswith(" resumed\n"), resumed.stderr
    await scene.until_bound("team-a", 1)


@asynccontextmanager
async def _webhooks(scene: Asking, folder: Path) -> AsyncIterator[None]:
    """Pods are made as users write them, and admitted as they are where Ballast is installed."""
    webhooks = scene.installation.webhooks(folder)
    await asyncio.to_thread(webhooks.start)
    for space in ("team-a", "team-b"):
        scene.cluster.kubectl(
            "label", "namespace", space, "ballast.dev/managed=true", "--overwrite"
        )
    ca = (folder / "ca.crt").read_bytes()
    try:
        with webhooks_in_force(scene.admin, webhooks.port, ca, "team-a"):
            yield
    finally:
        webhooks.kill()


async def _run_a_job(scene: Asking, folder: Path) -> None:
    """A gang that says how long it runs, as a tenant with the role edit makes it."""
    words = ["run", "gang", "--image", "example", "--gpus", "0.5", "--pods", "2"]
    words += ["--run-time", "2h", "--checkpoint", "30m", "--project", "team-a"]
    dry = await scene.ballast(*words, "--dry-run=server", kubeconfig=scene.editor)
    assert dry.returncode == 0, dry.stderr
    assert dry.stdout == "job.batch/gang created (server dry run)\n"
    refused = await scene.ballast(*words, "--dry-run=server", kubeconfig=scene.tenant)
    assert "forbidden" in refused.stderr
    async with _webhooks(scene, folder):
        made = await scene.ballast(*words, kubeconfig=scene.editor)
        assert made.returncode == 0, made.stderr
        assert "Warning" not in made.stderr
        group = scene.get("namespaces/team-a/gpupodgroups/gang")
        spec = group["spec"]
        assert (spec["minMember"], spec["expectedRunSeconds"]) == (2, 7200)
        assert group["metadata"]["ownerReferences"][0]["name"] == "gang"
        await scene.until_bound("team-a", 3)
        again = await scene.ballast(*words, kubeconfig=scene.editor)
        assert again.returncode == 1
        assert "already exists" in again.stderr
        await _run_where_no_project_is(scene)
        await _ask_of_a_job_that_was_scaled_down(scene)


async def _run_where_no_project_is(scene: Asking) -> None:
    """The webhook's words about the pods of the Job reach the author of the Job."""
    words = ["run", "try", "--image", "example", "-n", "default"]
    whole = await scene.ballast(*words, "--dry-run=server")
    assert whole.returncode == 0, whole.stderr
    assert "Warning: Ballast leaves this GPU request alone: namespace default" in whole.stderr
    part = await scene.ballast(*words, "--gpus", "0.5")
    assert part.returncode == 1
    assert "would have no effect, and the pod no GPU: namespace default belongs" in part.stderr
    assert scene.admin.get("/apis/batch/v1/namespaces/default/jobs")["items"] == []


async def _ask_of_a_job_that_was_scaled_down(scene: Asking) -> None:
    """Its pods still name three as their number: the view reads the Job, as the controller does."""
    job = workloads.job("scaled", "team-a", 3, 1000)
    job["spec"]["completionMode"] = "Indexed"
    scene.admin.post("/apis/batch/v1/namespaces/team-a/jobs", job)

    async def told() -> tuple[int, str]:
        words = ("why", "scaled", "-n", "team-a", "-o", "json")
        done = await scene.ballast(*words, kubeconfig=scene.tenant)
        found = json.loads(done.stdout or "{}")
        return found.get("pods", 0), found.get("reason", "")

    def is_told(*expected: object) -> Callable[[], bool]:
        return lambda: asyncio.run(told()) == expected

    await scene.until(is_told(3, "OverFairShare"), "a gang of three to wait for its share")
    size = json.dumps({"spec": {"parallelism": 2, "completions": 2}})
    scene.cluster.kubectl("patch", "job", "scaled", "-n", "team-a", "--type=merge", "-p", size)
    await scene.until(is_told(2, "OverFairShare"), "a gang of two to wait for it")


async def _convert(scene: Asking, folder: Path) -> None:
    """What is converted is accepted by the API server."""
    (folder / "kai.yaml").write_text(KAI)
    done = await scene.ballast("convert", "--from", "kai", "-f", str(folder / "kai.yaml"))
    assert done.returncode == 1
    assert "spec.priority=5: queues have no priority" in done.stderr
    made = scene.cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=done.stdout)
    assert [line.split()[0] for line in made.splitlines()] == [
        "gputopology.ballast.dev/net",
        "gpudepartment.ballast.dev/top",
        "gpuproject.ballast.dev/leaf",
    ]
    live = await scene.ballast("convert", "--from", "kueue")
    assert live.returncode == 1
    assert "no objects of kueue," in live.stderr


KAI = """
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: top}
spec: {resources: {gpu: {quota: 8, limit: -1}}}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: leaf}
spec:
  parentQueue: top
  priority: 5
  resources:
    gpu: {quota: 4, limit: 6, overQuotaWeight: 2}
    memory: {quota: 64000, limit: -1}
---
apiVersion: kai.scheduler/v1alpha1
kind: Topology
metadata: {name: net}
spec: {levels: [{nodeLabel: zone}, {nodeLabel: rack}]}
"""
