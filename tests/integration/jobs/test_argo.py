"""Argo's workflow-controller, beside everything of ours. Skipped unless `make argo` has built it.

Argo's executor does not run in the pods; how an evicted program ends is an annotation.
"""

import asyncio
from typing import Any

import pytest

from extender.api import names
from tests.integration.cycle.two_projects import Scene
from tests.integration.inference.deployments import started
from tests.integration.jobs.looks import (
    CARDS,
    HALF,
    container,
    delete,
    end,
    owner_leaves,
    owner_returns,
    pods,
    until_nothing_is_left,
    until_running,
)
from tests.support import argo as program
from tests.support.argo.running import Argo

pytestmark = pytest.mark.skipif(not program.PROGRAMS.has(), reason="no Argo: make argo builds it")
API = "/apis/argoproj.io/v1alpha1/namespaces/team-a"
NAME = "nightly"
LASTING = {"limit": 100, "retryPolicy": "Always"}


def step(name: str, gpus: int, **more: Any) -> dict[str, Any]:
    """A template whose pod ends as a program without a handler does when it is evicted."""
    # Without a command Argo would ask the image's registry.
    made = container(gpus) | {"command": ["python", "step.py"]}
    notes = {"annotations": {"simulation.ballast.dev/exit-code": "143"}}
    return {"name": name, "container": made, "metadata": notes} | more


def fan_out(n: int) -> dict[str, Any]:
    """As many pods of `train` as this, and after them one of `test`."""
    train = {"name": "train", "template": "train", "withSequence": {"count": str(n)}}
    return {"name": "main", "steps": [[train], [{"name": "test", "template": "test"}]]}


def submit(scene: Scene, *templates: dict[str, Any], **spec: Any) -> None:
    """The scheduler of this test knows no other profile than ours."""
    whole = {"templates": list(templates), "schedulerName": names.SCHEDULER_NAME} | spec
    body = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": NAME, "namespace": "team-a"},
        "spec": {"entrypoint": templates[0]["name"]} | whole,
    }
    scene.admin.post(f"{API}/workflows", body)


def status(scene: Scene) -> dict[str, Any]:
    return dict(scene.admin.get(f"{API}/workflows/{NAME}").get("status") or {})


async def until_it_is(scene: Scene, phase: str) -> None:
    await scene.until(lambda: status(scene).get("phase") == phase, f"it to be {phase}")


def messages(scene: Scene) -> str:
    """What Argo says of the workflow's nodes."""
    found = status(scene)
    nodes = (found.get("nodes") or {}).values()
    return "\n".join(each.get("message", "") for each in (found, *nodes))


def groups(scene: Scene) -> list[Any]:
    return list(scene.get("namespaces/team-a/gpupodgroups")["items"])


@pytest.mark.timeout(300)
async def test_steps_start_one_by_one_and_those_that_were_evicted_start_again(
    scene: Scene, argo: Argo
) -> None:
    await owner_returns(scene)
    templates = fan_out(CARDS), step("train", 1), step("test", 0)
    submit(scene, *templates, retryStrategy=LASTING)
    await until_running(scene, HALF)
    assert not groups(scene)
    owner_leaves(scene)
    before = await until_running(scene, CARDS)
    await owner_returns(scene)
    after = await until_running(scene, HALF)
    assert after.keys() <= before.keys()
    await scene.until(lambda: len(pods(scene)) == CARDS, "the evicted ones to be created again")
    argo.stop()
    await end(scene, {}, 0)
    await scene.until_decided(3)
    await asyncio.to_thread(argo.start)
    assert (await until_running(scene, HALF)).keys().isdisjoint(after)
    await end(scene, {}, 0)
    await scene.until(
        lambda: any("-test-" in each["metadata"]["name"] for each in pods(scene)), "the last step"
    )
    await end(scene, {}, 0)
    await until_it_is(scene, "Succeeded")
    delete(scene, "workflow", NAME)
    await until_nothing_is_left(scene)


def phases(scene: Scene) -> list[str]:
    """The phases of the nodes that are pods, as Argo saw them last."""
    nodes = (status(scene).get("nodes") or {}).values()
    return sorted(each["phase"] for each in nodes if each["type"] == "Pod")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("strategy", "lasts_as_error", "lasts_as_failure"),
    [
        (None, False, False),
        ({"limit": 10}, False, True),
        ({"limit": 10, "retryPolicy": "OnError"}, True, False),
        (LASTING, True, True),
    ],
)
@pytest.mark.parametrize("sees_end", ["false", "true"])
async def test_what_an_eviction_means_to_a_step(
    scene: Scene,
    strategy: dict[str, Any] | None,
    lasts_as_error: bool,
    lasts_as_failure: bool,
    sees_end: str,
) -> None:
    more = {"retryStrategy": strategy} if strategy else {}
    # A finalizer keeps the pod until Argo has seen how it ended.
    async with started(Argo(scene.plane, ARGO_POD_STATUS_CAPTURE_FINALIZER=sees_end)) as argo:
        submit(scene, fan_out(2), step("train", HALF, **more), step("test", 0))
        await until_running(scene, 2)
        await scene.until(lambda: phases(scene) == ["Running"] * 2, "Argo to see it")
        await owner_returns(scene)
        await until_running(scene, 1)
        if lasts_as_failure if sees_end == "true" else lasts_as_error:
            await scene.until(lambda: len(pods(scene)) == 2, "the step to be tried again")
        else:
            end = "Failed" if sees_end == "true" else "Error"
            await scene.until(lambda: phases(scene) == sorted([end, "Running"]), end)
            await scene.until_decided(5)
            assert len(pods(scene)) == 1
        delete(scene, "workflow", NAME)
        await until_nothing_is_left(scene)
        assert argo.is_alive


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("pattern", "phase"), [("", "Error"), ("InvalidRequest", "Running")])
async def test_a_refused_pod_ends_its_step_unless_argo_is_told_to_try_again(
    scene: Scene, pattern: str, phase: str
) -> None:
    wrong = step("train", 1)
    wrong["metadata"]["annotations"]["gpu-fraction"] = "2"
    async with started(Argo(scene.plane, TRANSIENT_ERROR_PATTERN=pattern)) as argo:
        await owner_returns(scene)
        submit(scene, wrong)
        await scene.until(lambda: "InvalidRequest" in messages(scene), "Argo to say why")
        await until_it_is(scene, phase)
        assert argo.is_alive
