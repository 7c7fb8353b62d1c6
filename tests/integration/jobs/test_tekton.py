"""The controller of Tekton Pipelines, beside everything of ours. Skipped unless `make tekton` has
built it.

Tekton's entrypoint does not run in the pods; a test says how their containers end.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from extender.api import names
from tests.integration.cycle.two_projects import Scene
from tests.integration.inference.deployments import started
from tests.integration.jobs.looks import (
    HALF,
    change,
    container,
    delete,
    end,
    owner_leaves,
    owner_returns,
    pods,
    until_nothing_is_left,
    until_running,
)
from tests.support import tekton as program
from tests.support.tekton.running import NOP_IMAGE, Tekton

pytestmark = pytest.mark.skipif(
    not program.PROGRAMS.has(), reason="no Tekton: make tekton builds it"
)
API = "/apis/tekton.dev/v1/namespaces/team-a"
PODS = "/api/v1/namespaces/team-a/pods"
NAME = "nightly"
#: The scheduler of this test knows no other profile than ours.
POD_TEMPLATE = {"podTemplate": {"schedulerName": names.SCHEDULER_NAME}}
TEKTON = {"app.kubernetes.io/managed-by": "tekton-pipelines"}
#: Keeps a pod until Tekton has seen how it ended.
KEPT = "ballast.dev/test"


@pytest.fixture
async def tekton(scene: Scene, tmp_path: Path) -> AsyncIterator[Tekton]:
    """One controller with its default settings."""
    async with started(Tekton(scene.plane, tmp_path)) as made:
        yield made


def step(name: str, gpus: int) -> dict[str, Any]:
    """A step; without a command Tekton would ask the image's registry."""
    made = container(gpus)
    resources = made.pop("resources")
    return made | {"name": name, "command": ["python"], "computeResources": resources}


def run(scene: Scene, *steps: dict[str, Any], **more: Any) -> None:
    """A TaskRun of these steps."""
    meta = {"name": NAME, "annotations": more.pop("annotations", {})}
    task = {"steps": list(steps)} | more.pop("task", {})
    body = {"apiVersion": "tekton.dev/v1", "kind": "TaskRun", "metadata": meta}
    scene.admin.post(f"{API}/taskruns", body | {"spec": {"taskSpec": task} | POD_TEMPLATE | more})


def task(name: str, gpus: int, **more: Any) -> dict[str, Any]:
    """A task of a pipeline with one step."""
    notes = more.pop("annotations", {})
    spec = {"metadata": {"annotations": notes}, "steps": [step("main", gpus)]}
    return {"name": name, "taskSpec": spec} | more


def pipeline(scene: Scene, *tasks: dict[str, Any], **more: Any) -> None:
    """A PipelineRun of these tasks."""
    meta = {"name": NAME, "annotations": more.pop("annotations", {})}
    body = {"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": meta}
    spec = {"pipelineSpec": {"tasks": list(tasks)}, "taskRunTemplate": POD_TEMPLATE}
    scene.admin.post(f"{API}/pipelineruns", body | {"spec": spec | more})


def told(scene: Scene, kind: str = "taskruns") -> tuple[str, str]:
    """The reason and message of the condition Succeeded of the only object of this kind."""
    (found,) = scene.admin.get(f"{API}/{kind}")["items"]
    conditions = found.get("status", {}).get("conditions") or [{}]
    return conditions[0].get("reason", ""), conditions[0].get("message", "")


async def until_told(scene: Scene, reason: str, kind: str = "taskruns") -> str:
    await scene.until(lambda: told(scene, kind)[0] == reason, f"{kind} to be {reason}")
    return told(scene, kind)[1]


def n_retries(scene: Scene) -> int:
    (found,) = scene.admin.get(f"{API}/taskruns")["items"]
    return len(found["status"].get("retriesStatus") or ())


def patch_pod(scene: Scene, name: str, patch: dict[str, Any]) -> None:
    words = ("patch", "pod", name, "-n", "team-a", "--type=merge", "-p", json.dumps(patch))
    scene.cluster.kubectl(*words)


def fill_quota(scene: Scene) -> None:
    """A pod that keeps all of team-a's quota."""
    labels = {names.LABEL_PREEMPTIBILITY: names.NON_PREEMPTIBLE}
    scene.submit_pod("team-a", "first", 1000 * HALF, labels=labels)


async def evict(scene: Scene, tekton: Tekton, *, sees_end: bool) -> None:
    """Evict the only pod of Tekton, as a program without a handler ends; Tekton sees how it ended,
    or only that it is gone."""
    (pod,) = pods(scene, TEKTON)
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    await scene.until(lambda: told(scene)[0] == "Running", "Tekton to see it")
    notes = {"annotations": {"simulation.ballast.dev/exit-code": "143"}}
    patch_pod(scene, name, {"metadata": notes | {"finalizers": [KEPT] if sees_end else []}})
    if not sees_end:
        tekton.pause()
    await owner_returns(scene)
    if sees_end:
        await scene.until(lambda: told(scene)[0] != "Running", "Tekton to see its end")
        patch_pod(scene, name, {"metadata": {"finalizers": None}})

    def is_gone() -> bool:
        return uid not in (each["metadata"]["uid"] for each in scene.admin.get(PODS)["items"])

    await scene.until(is_gone, "it to be gone")
    if not sees_end:
        await asyncio.to_thread(tekton.start)


def kinds_with_events(scene: Scene) -> set[str]:
    return {each["regarding"]["kind"] for each in scene.full_events("team-a")}


@pytest.mark.timeout(400)
async def test_a_waiting_task_says_why_and_its_timeout_counts_the_wait(
    scene: Scene, tekton: Tekton
) -> None:
    await owner_returns(scene)
    fill_quota(scene)
    await until_running(scene, 1)
    run(scene, step("train", 1), timeout="30s")
    await scene.until(lambda: names.CONDITION_PLACED in told(scene)[1], "why it waits")
    await scene.until(lambda: "TaskRun" in kinds_with_events(scene), "the reason")
    await until_told(scene, "TaskRunTimeout")
    await scene.until(lambda: not pods(scene, TEKTON), "its pod to be deleted")
    assert tekton.is_alive


@pytest.mark.timeout(400)
@pytest.mark.parametrize("sees_end", [False, True])
@pytest.mark.parametrize("retries", [0, 3])
async def test_what_an_eviction_means_to_a_task(
    scene: Scene, tekton: Tekton, retries: int, sees_end: bool
) -> None:
    fill_quota(scene)
    await until_running(scene, 1)
    pipeline(scene, task("train", HALF, retries=retries))
    await until_running(scene, 2)
    await evict(scene, tekton, sees_end=sees_end)
    if sees_end and not retries:
        assert "143" in await until_told(scene, "Failed")
        await scene.until_decided(3)
        assert not pods(scene, TEKTON)
        return
    await scene.until(lambda: len(pods(scene, TEKTON)) == 1, "it to be created again")
    assert n_retries(scene) == int(sees_end)
    owner_leaves(scene)
    await until_running(scene, 2)
    await end(scene, TEKTON, 0)
    await until_told(scene, "Succeeded", "pipelineruns")


@pytest.mark.timeout(400)
async def test_a_refused_pod_fails_its_task(scene: Scene, tekton: Tekton) -> None:
    await owner_returns(scene)
    run(scene, step("train", 0), annotations={"gpu-fraction": "2"})
    assert "InvalidRequest" in await until_told(scene, "PodCreationFailed")
    assert tekton.is_alive


@pytest.mark.timeout(400)
@pytest.mark.parametrize("is_waiting", [False, True])
async def test_cancelled_task_frees_its_cards_and_leaves_the_queue(
    scene: Scene, tekton: Tekton, is_waiting: bool
) -> None:
    fill_quota(scene)
    await until_running(scene, 1)
    if is_waiting:
        await owner_returns(scene)
    pipeline(scene, task("train", HALF))
    await scene.until(lambda: len(pods(scene, TEKTON)) == 1, "its pod")
    await until_running(scene, 1 if is_waiting else 2)
    change(scene, "pipelinerun", NAME, status="Cancelled")
    await until_told(scene, "Cancelled", "pipelineruns")
    await scene.until(lambda: not pods(scene, TEKTON), "its pod to be deleted")
    delete(scene, "pod", "first")
    delete(scene, "pipelinerun", NAME)
    await until_nothing_is_left(scene)
    assert tekton.is_alive


@pytest.mark.timeout(400)
async def test_steps_that_take_turns_ask_for_the_sum_of_their_cards(
    scene: Scene, tekton: Tekton
) -> None:
    run(scene, step("prepare", 0), step("train", 1), step("test", 1))
    await until_running(scene, 1)
    (pod,) = pods(scene, TEKTON)
    assert pod["metadata"]["annotations"][names.ANNOTATION_CARDS].count(",") == 1
    assert tekton.is_alive


@pytest.mark.timeout(400)
async def test_steps_share_a_fraction_and_side_cars_are_stopped(
    scene: Scene, tekton: Tekton
) -> None:
    side = {"name": "proxy", "image": "example.invalid/proxy", "command": ["proxy"]}
    notes = {"gpu-fraction": "0.5"}
    steps = (step("prepare", 0), step("train", 0))
    run(scene, *steps, annotations=notes, task={"sidecars": [side]})
    await until_running(scene, 1)
    await scene.until(lambda: told(scene)[0] == "Running", "Tekton to see it")
    (pod,) = pods(scene, TEKTON)
    assert pod["metadata"]["annotations"]["tekton.dev/ready"] == "READY"
    await end(scene, TEKTON, 0, only="step-")
    await until_told(scene, "Succeeded")
    await scene.until(lambda: NOP_IMAGE in images(scene), "the side-car to be stopped")
    await end(scene, TEKTON, 0)
    delete(scene, "taskrun", NAME)
    await until_nothing_is_left(scene)
    assert tekton.is_alive


def images(scene: Scene) -> list[str]:
    (pod,) = pods(scene, TEKTON)
    return [each["image"] for each in pod["spec"]["containers"]]


@pytest.mark.timeout(400)
async def test_a_pipeline_gives_cards_to_the_tasks_that_ask_for_them(
    scene: Scene, tekton: Tekton
) -> None:
    tasks = (
        task("prepare", 0),
        task("train", 1, runAfter=["prepare"]),
        task("test", 0, runAfter=["train"], annotations={"gpu-fraction": "0.5"}),
    )
    pipeline(scene, *tasks, annotations={"example.com/of": "all"})
    for name, milli in (("prepare", ""), ("train", "1k"), ("test", "500")):
        await scene.until(partial(is_running, scene, name), f"{name} to run")
        (pod,) = pods(scene, TEKTON | {"tekton.dev/pipelineTask": name})
        assert pod["metadata"]["annotations"]["example.com/of"] == "all"
        limits = pod["spec"]["containers"][0]["resources"].get("limits", {})
        assert limits.get(names.GPU_MILLI, "") == milli
        await end(scene, TEKTON, 0)
    await until_told(scene, "Succeeded", "pipelineruns")
    assert tekton.is_alive


def is_running(scene: Scene, name: str) -> bool:
    """Whether the only pod of this task runs."""
    found = pods(scene, TEKTON | {"tekton.dev/pipelineTask": name})
    return [each["status"]["phase"] for each in found] == ["Running"]


def make_volume(scene: Scene) -> None:
    """The claim `data`, bound to a volume that every node can reach."""
    size = {"storage": "1Gi"}
    common = {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeMode": "Filesystem"}
    claim = {"namespace": "team-a", "name": "data"}
    volume = {"capacity": size, "claimRef": claim, "hostPath": {"path": "/data"}}
    scene.admin.post(
        "/api/v1/persistentvolumes", {"metadata": {"name": "data"}, "spec": common | volume}
    )
    meta = {"name": "data", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    spec = common | {"volumeName": "data", "resources": {"requests": size}}
    body = {"metadata": meta, "spec": spec}
    scene.admin.post("/api/v1/namespaces/team-a/persistentvolumeclaims", body)
    patch = json.dumps({"status": {"phase": "Bound"}})
    words = ("patch", "pvc", "data", "-n", "team-a", "--subresource=status", "--type=merge")
    scene.cluster.kubectl(*words, "-p", patch)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("coschedule", ["workspaces", "disabled"])
async def test_a_task_with_a_volume_starts_beside_the_affinity_assistant_if_there_is_one(
    scene: Scene, tmp_path: Path, coschedule: str
) -> None:
    make_volume(scene)
    scene.submit_pod("team-a", "first", 1000)
    (node,) = (await until_running(scene, 1)).values()
    train = task("train", 1, workspaces=[{"name": "data"}])
    train["taskSpec"]["workspaces"] = [{"name": "data"}]
    spec = {"workspaces": [{"name": "data"}], "tasks": [train]}
    bound = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    async with started(Tekton(scene.plane, tmp_path, coschedule=coschedule)) as tekton:
        pipeline(scene, pipelineSpec=spec, workspaces=bound)
        if coschedule == "workspaces":
            await place_assistant(scene, node)
        await scene.until(partial(is_running, scene, "train"), "train to run")
        if coschedule == "workspaces":
            assert set((await until_running(scene, 2)).values()) == {node}
        assert tekton.is_alive


async def place_assistant(scene: Scene, node: str) -> None:
    """Bind the affinity assistant, which no scheduler of this test places."""
    labels = {"app.kubernetes.io/component": "affinity-assistant"}
    await scene.until(lambda: len(pods(scene, labels)) == 1, "the affinity assistant")
    name = pods(scene, labels)[0]["metadata"]["name"]
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    binding = {"metadata": {"name": name}, "target": target}
    scene.admin.post(f"{PODS}/{name}/binding", binding)
    await scene.until(lambda: pods(scene, labels)[0]["status"]["phase"] == "Running", "it to run")
