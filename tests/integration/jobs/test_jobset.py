"""JobSet's own controller and webhooks, beside Ballast's. Skipped unless `make jobset` built it."""

from typing import Any

import pytest

from tests.integration.cycle.two_projects import Scene
from tests.integration.jobs.looks import (
    HALF,
    JOBS,
    change,
    container,
    delete,
    end,
    owner_leaves,
    owner_returns,
    pods,
    running,
    until_nothing_is_left,
    until_running,
)
from tests.support import jobset
from tests.support.controllers import SigsController

pytestmark = pytest.mark.skipif(
    not jobset.PROGRAMS.has(), reason="no JobSet: make jobset builds it"
)
SETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team-a/jobsets"
ROLE = "jobset.sigs.k8s.io/replicatedjob-name"
JOB = "jobset.sigs.k8s.io/job-index"
INDEX = "batch.kubernetes.io/job-completion-index"


def jobs(name: str, replicas: int, n_pods: int, gpus: int = 1, **more: Any) -> dict[str, Any]:
    """A replicated Job, each of so many pods."""
    pod = {"spec": {"containers": [container(gpus)]}}
    spec = {"parallelism": n_pods, "completions": n_pods, "backoffLimit": 0, "template": pod}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}} | more


def submit(
    scene: Scene, *replicated: dict[str, Any], notes: dict[str, str] | None = None, **spec: Any
) -> None:
    scene.admin.post(
        SETS,
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "train", "namespace": "team-a", "annotations": notes or {}},
            "spec": {"replicatedJobs": list(replicated)} | spec,
        },
    )


def status(scene: Scene) -> dict[str, Any]:
    return dict(scene.admin.get(f"{SETS}/train")["status"])


@pytest.mark.timeout(300)
async def test_a_job_set_is_evicted_whole_starts_whole_again_and_can_be_suspended(
    scene: Scene, job_sets: SigsController
) -> None:
    submit(scene, jobs("driver", 1, 1, gpus=0), jobs("workers", 2, 3))
    await until_running(scene, 6)
    await owner_returns(scene)
    await until_running(scene, 0)
    await scene.until(lambda: len(pods(scene, {ROLE: "workers"})) == 6, "the pods again")
    await scene.until_decided(3)
    assert not running(scene)
    owner_leaves(scene)
    await until_running(scene, 6)
    assert status(scene)["restarts"] == 0
    assert not any(job["status"].get("failed") for job in scene.admin.get(JOBS)["items"])
    change(scene, "jobset", "train", suspend=True)
    await until_running(scene, 0)
    change(scene, "jobset", "train", suspend=False)
    await until_running(scene, 6)
    delete(scene, "jobset", "train")
    await until_nothing_is_left(scene)
    assert job_sets.is_alive


@pytest.mark.timeout(300)
async def test_jobs_that_follow_others_are_a_gang_which_a_failure_restarts_whole(
    scene: Scene, job_sets: SigsController
) -> None:
    follows = [{"name": "prepare", "status": "Complete"}]
    submit(
        scene,
        jobs("prepare", 1, 1),
        jobs("workers", 1, HALF + 1, dependsOn=follows),
        failurePolicy={"maxRestarts": 1},
    )
    await until_running(scene, 1)
    await owner_returns(scene)
    await end(scene, {ROLE: "prepare"}, 0)
    await scene.until(lambda: len(pods(scene, {ROLE: "workers"})) == HALF + 1, "the workers")
    await scene.until_decided(3)
    assert not running(scene)
    owner_leaves(scene)
    before = await until_running(scene, HALF + 1)
    await end(scene, {ROLE: "workers", INDEX: "1"}, 1)
    await scene.until(lambda: status(scene)["restarts"] == 1, "the JobSet to restart")
    await until_running(scene, 1, {ROLE: "prepare"})
    await end(scene, {ROLE: "prepare"}, 0)
    after = await until_running(scene, HALF + 1, {ROLE: "workers"})
    assert before.keys().isdisjoint(after)
    assert job_sets.is_alive


@pytest.mark.timeout(300)
async def test_with_exclusive_placement_first_pods_start_together_and_others_beside_them(
    scene: Scene, job_sets: SigsController
) -> None:
    exclusive = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "kubernetes.io/hostname"}
    submit(scene, jobs("workers", 2, 2), notes=exclusive)
    await until_running(scene, 4)
    nodes = [set(running(scene, {JOB: each}).values()) for each in ("0", "1")]
    assert [len(each) for each in nodes] == [1, 1]
    assert nodes[0].isdisjoint(nodes[1])
    assert job_sets.is_alive
