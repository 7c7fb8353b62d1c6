"""KServe's own controller manager and webhooks, with the InferenceService that docs/inference.md
shows.

Skipped unless `$BALLAST_KSERVE` is a folder that has them (`tests.support.kserve`).
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from extender.__main__ import main
from extender.api import names
from tests.integration.cycle.two_projects import Scene
from tests.integration.inference.deployments import (
    AUTOSCALERS,
    CARDS,
    DEPLOYMENTS,
    FLOOR,
    PAGE,
    autoscaler,
    is_available,
    measured,
    of_page,
    query_of_page,
    running,
    started,
    wanted,
)
from tests.integration.inference.metrics_api import Load
from tests.support import keda, kserve, lws
from tests.support.controllers import SigsController
from tests.support.keda.running import Keda
from tests.support.kserve import INFERENCE_SERVICES, LLM_INFERENCE_SERVICES, KServe, Part

pytestmark = pytest.mark.skipif(
    not kserve.is_built(), reason="no KServe: set BALLAST_KSERVE to a folder that has it"
)
SERVICES = "/apis/serving.kserve.io/v1beta1/namespaces/team-a/inferenceservices"
LLM_API = "/apis/serving.kserve.io/v1alpha2/namespaces/team-a"
CLASS = "serving.kserve.io/autoscalerClass"
#: How long nothing may be written once everything runs.
QUIET_S = 30.0


@pytest.fixture
async def controller(
    scene: Scene, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[KServe]:
    """The part of KServe that is the parameter, or the one for InferenceServices."""
    part: Part = getattr(request, "param", INFERENCE_SERVICES)
    async with started(KServe(scene.plane, part, tmp_path)) as made:
        yield made


def service(autoscaler_class: str) -> dict[str, Any]:
    """The InferenceService as it stands on the page, with this class of autoscaler."""
    (found,) = of_page("InferenceService")
    found["metadata"]["annotations"][CLASS] = autoscaler_class
    return found


def patch(scene: Scene, predictor: dict[str, Any]) -> None:
    """Change the predictor of the InferenceService."""
    change = json.dumps({"spec": {"predictor": predictor}})
    words = ("patch", "inferenceservice", "llm", "-n", "team-a", "--type=merge", "-p", change)
    scene.cluster.kubectl(*words)


def scale(scene: Scene, n: int, deployment: str = "llm-predictor") -> None:
    """What an autoscaler does."""
    words = ("scale", "deployment", deployment, "-n", "team-a", f"--replicas={n}")
    scene.cluster.kubectl(*words)


def replicas(scene: Scene, state: str, owner: str = "inferenceservice-llm") -> int:
    """How many replicas the metric has in this state."""
    of = rf'^ballast_replicas\{{owner="team-a/{owner}"'
    found = re.search(rf'{of},state="{state}"\}} (\S+)$', scene.metrics(), re.M)
    return int(float(found[1])) if found else 0


def versions(scene: Scene) -> dict[str, str]:
    """The version of everything that KServe, its autoscaler and Ballast might write."""
    paths = (SERVICES, DEPLOYMENTS, AUTOSCALERS, "/api/v1/namespaces/team-a/pods")
    listed = [each for path in paths for each in scene.admin.get(path)["items"]]
    return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in listed}


@asynccontextmanager
async def questions(scene: Scene) -> AsyncIterator[None]:
    """`ballast view` beside the scene."""
    name = "v1alpha1.view.ballast.dev"
    path = f"/apis/apiregistration.k8s.io/v1/apiservices/{name}"

    def is_available() -> bool:
        found = scene.admin.get(path).get("status", {}).get("conditions", ())
        return any((each["type"], each["status"]) == ("Available", "True") for each in found)

    view = scene.installation.view()
    try:
        await asyncio.to_thread(view.start)
        await scene.until(is_available, "the APIService to be available")
        yield
    finally:
        view.end()
        scene.cluster.kubectl("delete", "apiservice", name)


def is_ready(scene: Scene) -> bool:
    """Whether the InferenceService and its Deployment say so."""
    found = scene.admin.get(f"{SERVICES}/llm")["status"]["conditions"]
    told = ("Ready", "True") in [(each["type"], each["status"]) for each in found]
    return told and is_available(scene, "llm-predictor")


async def serve_floor(scene: Scene) -> None:
    """A service of class hpa, with its floor kept."""
    scene.admin.post(SERVICES, service("hpa"))
    patch(scene, {"minReplicas": FLOOR, "maxReplicas": CARDS})
    await scene.until(lambda: replicas(scene, "kept") == FLOOR, "the floor to be kept")


async def why(scene: Scene) -> str:
    """What `ballast why` says of the service, as the page asks it."""
    (asked,) = re.findall(r"`kubectl ballast (why \S+)`", PAGE.read_text("utf-8"))
    argv, env = [*asked.split(), "-n", "team-a"], {"KUBECONFIG": scene.plane.kubeconfig}
    return (await asyncio.to_thread(CliRunner().invoke, main, argv, env=env)).output


@pytest.mark.timeout(400)
async def test_a_service_keeps_its_floor_and_its_surge_goes_one_by_one(
    scene: Scene, controller: KServe, tmp_path: Path
) -> None:
    with autoscaler(scene, tmp_path):
        await serve_floor(scene)
        floor = running(scene)
        patch(scene, {"minReplicas": CARDS})
        await scene.until_bound("team-a", CARDS)
        for taken, name in enumerate(("one", "two"), start=1):
            scene.submit_job("team-b", name, 1, 1000)
            await scene.until_bound("team-b", taken)
            await scene.until_bound("team-a", CARDS - taken)
        assert running(scene) == floor
        await scene.until(lambda: replicas(scene, "waiting") == CARDS - FLOOR, "the rest to wait")
    assert controller.is_alive


@pytest.mark.timeout(400)
async def test_what_kserve_and_ballast_write_comes_to_rest(
    scene: Scene, controller: KServe, tmp_path: Path
) -> None:
    with autoscaler(scene, tmp_path):
        await serve_floor(scene)
        await asyncio.sleep(QUIET_S / 6)
        before = versions(scene)
        await asyncio.sleep(QUIET_S)
        assert versions(scene) == before
    assert controller.is_alive


@pytest.mark.timeout(400)
async def test_an_update_within_a_full_quota_needs_a_strategy_without_surge(
    scene: Scene, controller: KServe
) -> None:
    usual = service("external")
    ours = usual["spec"]["predictor"].pop("deploymentStrategy")
    scene.admin.post(SERVICES, usual)
    await scene.until_bound("team-a", 1)
    scale(scene, FLOOR)
    await scene.until(lambda: replicas(scene, "kept") == FLOOR, "the floor to be kept")
    scene.submit_job("team-b", "rest", CARDS - FLOOR, 1000)
    await scene.until_bound("team-b", CARDS - FLOOR)
    before = running(scene)
    patch(scene, {"labels": {"release": "next"}})
    await scene.until(lambda: replicas(scene, "waiting") == 1, "the new replica to wait")
    await scene.until_decided(5)
    assert running(scene) == before
    async with questions(scene):
        assert re.search("^WAITS for .* OverFairShare$", await why(scene), re.M)
    patch(scene, {"deploymentStrategy": ours})
    await scene.until(
        lambda: len(running(scene)) == FLOOR and before.keys().isdisjoint(running(scene)),
        "every replica to be another",
    )
    await scene.until(lambda: replicas(scene, "kept") == FLOOR, "the floor to be kept")
    assert len((await scene.look("team-b")).bound) == CARDS - FLOOR
    scale(scene, FLOOR + 1)
    await scene.until(lambda: replicas(scene, "waiting") == 1, "one replica to wait")
    await scene.until(lambda: is_ready(scene), "the service to be ready")
    assert controller.is_alive


@pytest.mark.skipif(not keda.PROGRAMS.has(), reason="no KEDA: make keda builds it")
@pytest.mark.timeout(400)
async def test_kserves_own_scaled_object_takes_the_query_and_has_no_value_for_no_load(
    scene: Scene, operator: Keda, controller: KServe, tmp_path: Path
) -> None:
    load, made, name = Load(), service("keda"), "llm-predictor"
    load.n_requests = 16 * 20
    with measured(scene, tmp_path, load) as (seen, _):
        query = query_of_page().replace("deployment-llm", "inferenceservice-llm")
        metric = {
            "backend": "prometheus",
            "serverAddress": f"http://127.0.0.1:{seen.port}",
            "query": query,
        }
        external = {"metric": metric, "target": {"type": "Value", "value": "1"}}
        made["spec"]["predictor"] |= {
            "minReplicas": FLOOR,
            "maxReplicas": 40,
            "autoScaling": {
                "metrics": [{"type": "External", "external": external}],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
            },
        }
        scene.admin.post(SERVICES, made)
        await scene.until(lambda: replicas(scene, "kept") == FLOOR, "the floor to be kept")
        await scene.until(lambda: wanted(scene, name) == CARDS + 1, "every card to be asked for")
        await scene.until(lambda: replicas(scene, "waiting") == 1, "one replica to wait")
        await scene.until(lambda: is_ready(scene), "the service to be ready")
        scene.installation.control.kill()
        await scene.until(lambda: wanted(scene, name) == FLOOR, "the floor to be left")
        scene.installation.control.start()
        await scene.until(lambda: wanted(scene, name) == CARDS + 1, "the load to be followed")
    assert controller.is_alive
    assert operator.is_alive


@pytest.mark.timeout(400)
@pytest.mark.parametrize("controller", [LLM_INFERENCE_SERVICES], indirect=True)
async def test_an_llm_service_keeps_its_floor(scene: Scene, controller: KServe) -> None:
    (made,) = of_page("LLMInferenceService")
    scene.admin.post(f"{LLM_API}/llminferenceservices", made)
    await scene.until_bound("team-a", 1)
    scale(scene, CARDS, "llm-kserve")
    await scene.until_bound("team-a", CARDS)
    owner = "deployment-llm-kserve"
    await scene.until(lambda: replicas(scene, "kept", owner) == FLOOR, "the floor to be kept")
    scene.submit_job("team-b", "rest", CARDS - FLOOR, 1000)
    await scene.until_bound("team-b", CARDS - FLOOR)
    await scene.until_bound("team-a", FLOOR)
    assert replicas(scene, "kept", owner) == FLOOR
    assert controller.is_alive


@pytest.mark.skipif(
    not lws.PROGRAMS.has(), reason="no LeaderWorkerSet controller: make lws builds it"
)
@pytest.mark.timeout(400)
@pytest.mark.parametrize("controller", [LLM_INFERENCE_SERVICES], indirect=True)
async def test_replicas_of_several_nodes_are_gangs_of_which_the_floor_stays(
    scene: Scene, worker_sets: SigsController, controller: KServe
) -> None:
    (made,) = of_page("LLMInferenceService")
    spec, size = made["spec"], 2
    spec["annotations"] = {names.ANNOTATION_FLOOR: "1"}
    spec["worker"] = spec["template"]
    spec["parallelism"] = {"data": size, "dataLocal": 1}
    scene.admin.post(f"{LLM_API}/llminferenceservices", made)
    await scene.until_bound("team-a", size)
    owner = "leaderworkerset-llm-kserve-mn"
    await scene.until(lambda: replicas(scene, "kept", owner) == 1, "the floor to be kept")
    floor = running(scene)
    words = ("scale", "leaderworkerset", "llm-kserve-mn", "-n", "team-a", "--replicas=2")
    scene.cluster.kubectl(*words)
    await scene.until_bound("team-a", CARDS)
    scene.submit_job("team-b", "one", 1, 1000)
    await scene.until_bound("team-b", 1)
    # A GPU is needed, and a group of two leaves whole.
    await scene.until_bound("team-a", size)
    assert running(scene) == floor
    assert controller.is_alive
    assert worker_sets.is_alive
