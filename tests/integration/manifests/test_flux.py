"""Flux's kustomize-controller applies a team's objects, its queues and Ballast itself again and
again. Skipped unless `make flux` has built it."""

import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integration.cycle.two_projects import Scene
from tests.integration.inference.deployments import started
from tests.integration.manifests.repository import (
    N_PODS,
    as_list,
    ballast,
    is_comparison,
    n_lines,
    objects,
    queues,
    remove_flow_schemas,
    requests,
)
from tests.support import flux as program
from tests.support import workloads
from tests.support.flux.running import Flux
from tests.support.overlays import of_kind, rendered

pytestmark = [
    pytest.mark.skipif(
        not program.PROGRAMS.has(), reason="no kustomize-controller: make flux builds it"
    ),
    pytest.mark.timeout(400),
]
POLICIES: Final = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
#: Both the policy and its binding.
DROPPED: Final = "figures.ballast.dev"
PROJECT: Final = f"{workloads.API}/gpuprojects/team-a"


@pytest.fixture
async def flux(scene: Scene, tmp_path: Path) -> AsyncIterator[Flux]:
    async with started(Flux(scene.plane, tmp_path)) as made:
        yield made
    remove_flow_schemas(scene)


def of_flux(scene: Scene, since: int) -> list[Any]:
    """What Flux wrote or compared after so many lines, its own objects excepted."""
    found = requests(scene, since, "kustomize-controller")
    return [each for each in found if each["objectRef"]["resource"] != "kustomizations"]


def writes(scene: Scene, since: int) -> Counter[tuple[str, str, str]]:
    """(verb, resource, name) of the requests that were no comparison."""
    return Counter(
        (each["verb"], each["objectRef"]["resource"], each["objectRef"]["name"])
        for each in of_flux(scene, since)
        if not is_comparison(each)
    )


def n_comparisons(scene: Scene, since: int, name: str) -> int:
    found = filter(is_comparison, of_flux(scene, since))
    return sum(each["objectRef"].get("name") == name for each in found)


async def until_applied(scene: Scene, flux: Flux, name: str, revision: str) -> None:
    await scene.until(
        lambda: flux.condition(name) == ("True", f"Applied revision: {revision}"),
        f"{name} to be applied",
    )


async def assert_nothing_is_written(scene: Scene) -> None:
    """Three more comparisons of everything find no difference."""
    since = n_lines(scene)
    await scene.until(
        lambda: all(
            n_comparisons(scene, since, name) >= 3
            for name in ("notebook", "team-a", "ballast-webhooks", "gpuprojects.ballast.dev")
        ),
        "Flux to compare",
    )
    assert not writes(scene, since)


async def test_what_is_applied_again_stays_as_it_is_and_an_upgrade_stops_nothing(
    scene: Scene, flux: Flux
) -> None:
    installed, last = ballast(scene), ""
    parts = {"crds": rendered("crds"), "ballast": installed, "queues": queues(), "team": objects()}
    for name, documents in parts.items():
        revision = flux.publish(name, list(documents))
        flux.follow(name, dependsOn=[{"name": last}] if last else [])
        await until_applied(scene, flux, name, revision)
        last = name
    await scene.until_bound("team-a", N_PODS)
    bound = (await scene.look("team-a")).bound
    await assert_nothing_is_written(scene)
    newer = json.loads(json.dumps(installed).replace('"0.1.0"', '"0.2.0"'))
    since = n_lines(scene)
    kept = [each for each in newer if each["metadata"]["name"] != DROPPED]
    await until_applied(scene, flux, "ballast", flux.publish("ballast", kept))
    written = writes(scene, since)
    deleted = {(resource, name) for verb, resource, name in written if verb == "delete"}
    assert deleted == {(f"{kind.lower()}s".replace("ys", "ies"), DROPPED) for kind in POLICIES}
    assert ("patch", "deployments", "ballast-control") in written
    await assert_nothing_is_written(scene)
    assert (await scene.look("team-a")).bound == bound


async def test_project_is_pruned_once_its_pods_are_gone(scene: Scene, flux: Flux) -> None:
    policies = of_kind(rendered("default"), *POLICIES)
    scene.cluster.kubectl("apply", "--server-side", "-f-", stdin=json.dumps(as_list(policies)))
    flux.publish("team", [*queues(), *objects()])
    flux.follow("team")
    await scene.until_bound("team-a", N_PODS)
    await scene.until(
        lambda: scene.admin.get(PROJECT)["status"]["gpu"]["runningPods"] == N_PODS,
        "the project to tell of its pods",
    )
    bound = (await scene.look("team-a")).bound
    department = queues()[:1]
    flux.publish("team", [*department, *objects()])
    await scene.until(
        lambda: f"gpuproject team-a has {N_PODS} running" in flux.condition("team")[1],
        "the refusal",
    )
    assert (await scene.look("team-a")).bound == bound
    flux.publish("team", department)
    await scene.until(lambda: not scene.admin.has(PROJECT), "the project to be deleted")
    await scene.until(lambda: flux.condition("team")[0] == "True", "Flux to be done")
