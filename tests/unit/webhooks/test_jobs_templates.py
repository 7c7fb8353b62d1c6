"""Warnings about the pods that an object's templates make."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from extender.api import names
from extender.api.queue_kinds import KindSelector
from tests.support.admission import Document, index_of, pod, project, refusal
from tests.support.admission import decision_on as decision_on_pod
from tests.unit.webhooks.authored import app, decision_on, job, ray_job, template
from tests.unit.webhooks.test_argo import step, workflow
from webhooks.forbidden import NETWORK_CARDS
from webhooks.projects import ProjectIndex


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_author_of_an_app_is_told_that_its_pods_will_be_refused(kind: str) -> None:
    made = app(kind)
    assert decision_on(made).warnings == ()
    made["spec"]["template"]["metadata"]["annotations"] = {"gpu-fraction": "0.5"}
    (warning,) = decision_on(made).warnings
    assert "its pods will be refused: " in warning
    assert "use one of them" in warning
    assert decision_on(made).ops == ()


def test_update_of_an_app_is_looked_at_where_its_template_changes() -> None:
    before, after = app(), app()
    after["spec"]["template"]["metadata"]["annotations"] = {"gpu-fraction": "0.5"}
    (warning,) = decision_on(after, operation="UPDATE", oldObject=before).warnings
    assert "its pods will be refused: " in warning
    scaled = copy.deepcopy(after)
    scaled["spec"]["replicas"] = 3
    assert decision_on(scaled, operation="UPDATE", oldObject=after).warnings == ()


@pytest.mark.parametrize(
    ("kind", "spec", "min_member", "is_told"),
    [
        ("StatefulSet", {"podManagementPolicy": "OrderedReady", "replicas": 3}, "3", True),
        ("StatefulSet", {"podManagementPolicy": "OrderedReady", "replicas": 3}, "1", False),
        ("StatefulSet", {"podManagementPolicy": "OrderedReady", "replicas": 1}, "3", False),
        ("StatefulSet", {"podManagementPolicy": "Parallel", "replicas": 3}, "3", False),
        ("Deployment", {"replicas": 3}, "3", False),
    ],
)
def test_author_is_told_of_a_gang_whose_pods_are_created_one_after_the_other(
    kind: str, spec: Document, min_member: str, *, is_told: bool
) -> None:
    made = app(kind)
    made["spec"] |= spec
    notes = {names.ANNOTATION_MIN_MEMBER: min_member}
    made["spec"]["template"]["metadata"]["annotations"] = notes
    warned = decision_on(made).warnings
    assert [("set podManagementPolicy: Parallel" in each) for each in warned] == [True] * is_told


@pytest.mark.parametrize("made", [app(resources={}), app("StatefulSet", {}), job(resources={})])
def test_word_that_is_not_on_the_pod_template_is_reported(made: Document) -> None:
    made = copy.deepcopy(made)
    made["metadata"]["annotations"] = {"gpu-fraction": "0.5", "example.com/other": "x"}
    (warning,) = decision_on(made).warnings
    assert warning == (
        f"annotation gpu-fraction has no effect on a {made['kind']}: Ballast reads it on pods;"
        " write it into spec.template.metadata.annotations"
    )
    made["spec"]["template"]["metadata"]["annotations"] = {"gpu-fraction": "0.5"}
    assert decision_on(made).warnings == ()


def in_document(kind: str, *path: str | int, **more: Any) -> Document:
    """An object of this kind with a pod template without GPUs at this path of its spec."""
    inner: Any = template(resources={})
    for key in reversed(path):
        inner = [inner] if key == 0 else {key: inner}
    meta = {"name": "train", "namespace": "team-a"}
    return {"apiVersion": "a/v1", "kind": kind, "metadata": meta, "spec": inner | more}


#: Kind -> where its pod template is.
PATHS: dict[str, tuple[str | int, ...]] = {
    "Deployment": ("template",),
    "Job": ("template",),
    "CronJob": ("jobTemplate", "spec", "template"),
    "JobSet": ("replicatedJobs", 0, "template", "spec", "template"),
    "LeaderWorkerSet": ("leaderWorkerTemplate", "workerTemplate"),
    "PyTorchJob": ("pytorchReplicaSpecs", "Worker", "template"),
    "RayCluster": ("workerGroupSpecs", 0, "template"),
    "RayJob": ("rayClusterSpec", "workerGroupSpecs", 0, "template"),
    "RayService": ("rayClusterConfig", "workerGroupSpecs", 0, "template"),
    "ScaledJob": ("jobTargetRef", "template"),
}


@pytest.mark.parametrize("kind", PATHS)
def test_author_is_told_of_a_misspelt_word_in_any_pod_template(kind: str) -> None:
    made = in_document(kind, *PATHS[kind])
    found = made["spec"]
    for key in PATHS[kind]:
        found = found[key]
    found["metadata"] = {"annotations": {"gpu_fraction": "0.5"}, "labels": {"gpu-memory": "8192"}}
    assert decision_on(made).warnings == (
        "annotation gpu_fraction is not read; did you mean the annotation gpu-fraction?",
        "label gpu-memory is not read: Ballast reads gpu-memory as an annotation",
    )


@pytest.mark.parametrize("kind", PATHS)
def test_author_is_told_where_a_word_of_the_object_belongs(kind: str) -> None:
    made = in_document(kind, *PATHS[kind])
    made["metadata"]["annotations"] = {"gpu-fraction": "0.5"}
    (warning,) = decision_on(made).warnings
    path = "spec." + ".".join(map(str, PATHS[kind])).replace(".0", "[0]")
    assert warning == (
        f"annotation gpu-fraction has no effect on a {kind}: Ballast reads it on pods; write it"
        f" into {path}.metadata.annotations"
    )


def test_word_that_is_misspelt_is_reported_when_it_is_new() -> None:
    before, after = app(resources={}), app(resources={})
    after["spec"]["template"]["metadata"]["annotations"] = {"gpu_fraction": "0.5"}
    assert decision_on(after, operation="UPDATE", oldObject=before).warnings
    assert decision_on(after, operation="UPDATE", oldObject=after).warnings == ()


@pytest.mark.parametrize("kind", ["LeaderWorkerSet", "RayCluster", "RayService"])
def test_author_is_told_that_the_pods_of_any_kind_will_be_refused(kind: str) -> None:
    made = in_document(kind, *PATHS[kind])
    found = made["spec"]
    for key in PATHS[kind]:
        found = found[key]
    found["metadata"] = {"annotations": {"gpu-fraction": "50%"}}
    (warning,) = decision_on(made).warnings
    assert warning.startswith("its pods will be refused: ")


@pytest.mark.parametrize(
    ("what", "key"),
    [
        ("annotation", "kai.scheduler/topology-required-placement"),
        ("annotation", "kueue.x-k8s.io/podset-preferred-topology"),
        ("annotation", "pod-group.scheduling.sigs.k8s.io/min-available"),
        ("label", "scheduling.x-k8s.io/pod-group"),
        ("label", "kai.scheduler/preemptibility"),
    ],
)
def test_word_of_another_scheduler_that_is_not_on_the_pod_template_is_reported(
    what: str, key: str
) -> None:
    made = job()
    made["metadata"][f"{what}s"] = {key: "x"}
    (warning,) = decision_on(made).warnings
    assert warning.startswith(f"{what} {key} has no effect on a Job")
    made["spec"]["template"]["metadata"][f"{what}s"] = {key: "preemptible"}
    assert "has no effect on a Job" not in str(decision_on(made).warnings)


def test_project_of_another_scheduler_may_be_named_on_the_job_alone() -> None:
    made = job()
    made["metadata"]["labels"] = {"runai/queue": "vision", "kai.scheduler/queue": "vision"}
    assert decision_on(made).warnings == ()


@pytest.mark.parametrize(("kind", "is_told"), [("RayCluster", True), ("RayService", False)])
def test_pods_of_a_ray_service_are_judged_as_inference(kind: str, is_told: bool) -> None:
    made = in_document(kind, *PATHS[kind])
    found = made["spec"]
    for key in PATHS[kind]:
        found = found[key]
    found["metadata"] = {"annotations": {"gpu-fraction": "0.5"}}
    found["spec"]["nodeSelector"] = {"tier": "serving"}
    of_training = KindSelector(workload_kind="training", match_labels={"tier": "batch"})
    index = index_of(project("vision", "team-a", node_affinity=[of_training]))
    told = decision_on(made, index).warnings
    assert any("will be refused" in each for each in told) is is_told


@pytest.mark.parametrize("resource", ["nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb.shared"])
@pytest.mark.parametrize("make", [job, app])
def test_author_is_told_of_a_resource_that_no_pod_of_a_project_may_request(
    make: Callable[..., Document], resource: str
) -> None:
    made = make(resources={"limits": {resource: "1"}})
    (warning,) = decision_on(made).warnings
    assert warning.startswith(f"its pods will be refused: {resource} is not a resource that")
    assert decision_on(made, index_of(project("vision", "team-b"))).warnings == ()
    assert decision_on(make(resources={"limits": {resource: "0"}})).warnings == ()


@pytest.mark.parametrize("resource", ["nvidia.com/gpumem", *NETWORK_CARDS, "rdma/shared_device"])
def test_resource_that_is_translated_or_no_gpu_is_not_reported(resource: str) -> None:
    made = job(resources={"limits": {resource: "9000"}})
    assert "will be refused" not in str(decision_on(made).warnings)


def test_word_that_is_added_to_an_app_instead_of_its_template_is_reported_once() -> None:
    before, after = app(), app()
    after["metadata"]["annotations"] = {names.ANNOTATION_FLOOR: "2"}
    (warning,) = decision_on(after, operation="UPDATE", oldObject=before).warnings
    assert "ballast.dev/floor has no effect on a Deployment" in warning
    scaled = copy.deepcopy(after)
    scaled["spec"]["replicas"] = 3
    assert decision_on(scaled, operation="UPDATE", oldObject=after).warnings == ()


def test_label_that_is_not_on_the_pod_template_is_reported() -> None:
    made = app()
    made["metadata"]["labels"] = {names.LABEL_WORKLOAD_KIND: "interactive", "app": "llm"}
    (warning,) = decision_on(made).warnings
    assert "write it into spec.template.metadata.labels" in warning


@pytest.mark.parametrize("containers", ["containers", "initContainers"])
@pytest.mark.parametrize(
    ("variable", "n_warnings"),
    [({"value": "all"}, 1), ({"value": "void"}, 0), ({"value": "none"}, 0), ({}, 1)],
)
def test_author_is_told_of_cards_by_environment(
    variable: Document, n_warnings: int, containers: str
) -> None:
    made = app()
    spec = made["spec"]["template"]["spec"]
    container = {**spec["containers"][0], "name": "loud", "resources": {}}
    spec[containers] = [*spec.get(containers, ()), container]
    container["env"] = [{"name": "A"}, {"name": "NVIDIA_VISIBLE_DEVICES"} | variable]
    warned = decision_on(made).warnings
    assert len(warned) == n_warnings
    assert all("container loud sets NVIDIA_VISIBLE_DEVICES" in each for each in warned)


SHARES = (
    {"annotations": {"gpu-memory": "4096"}},
    {"resources": {"limits": {"nvidia.com/mig-1g.10gb": "1"}}},
    {"resources": {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4096"}}},
)


@pytest.mark.parametrize("share", SHARES, ids=["annotation", "MIG", "HAMi"])
def test_author_is_told_what_a_pod_with_a_share_may_not_have(share: Document) -> None:
    made = app(resources=share.get("resources", {}))
    template = made["spec"]["template"]
    template["metadata"]["annotations"] = share.get("annotations", {})
    template["spec"]["volumes"] = [{"name": "data", "hostPath": {"path": "/data"}}]
    assert any("volume data is a hostPath" in each for each in decision_on(made).warnings)


def test_author_is_not_told_that_a_minimum_has_no_effect_where_the_owner_names_the_group() -> None:
    made = job(completionMode="Indexed", parallelism=4, completions=4)
    notes = {names.ANNOTATION_MIN_MEMBER: "1"}
    made["spec"]["template"]["metadata"]["annotations"] = notes
    assert decision_on(made).warnings == ()


UNLISTED = index_of()
HALF = {"gpu-fraction": "0.5"}


@pytest.mark.parametrize("made", [job(), app(), app("StatefulSet"), ray_job(), workflow(step())])
def test_author_of_a_template_without_a_project_reads_what_a_pod_draws(made: Document) -> None:
    bare = pod("x", namespace="team-a").asking("nvidia.com/gpu", "1")
    decision = decision_on(made, UNLISTED)
    assert decision.ops == ()
    assert decision.warnings == decision_on_pod(bare, UNLISTED).warnings != ()


def test_author_of_a_template_without_a_project_is_told_that_its_pods_will_be_refused() -> None:
    made = job(resources={})
    made["spec"]["template"]["metadata"]["annotations"] = HALF
    (warning,) = decision_on(made, UNLISTED).warnings
    assert warning == f"its pods will be refused: {refusal(pod('train').noted(HALF), UNLISTED)}"


def test_rules_of_projects_are_not_for_templates_without_a_project() -> None:
    made = job("OnFailure", activeDeadlineSeconds=60)
    assert decision_on(made, UNLISTED).warnings == decision_on(job(), UNLISTED).warnings
    assert decision_on(job(resources={}), UNLISTED).warnings == ()


def test_update_without_a_project_is_looked_at_where_the_template_changes() -> None:
    before, after = app(resources={}), app()
    changed = decision_on(after, UNLISTED, operation="UPDATE", oldObject=before)
    assert "belongs to no project" in changed.warnings[0]
    assert decision_on(after, UNLISTED, operation="UPDATE", oldObject=after).warnings == ()


@pytest.mark.parametrize("index", [None, UNLISTED], ids=["project", "no project"])
def test_job_whose_name_is_generated_is_named_by_its_prefix(index: ProjectIndex | None) -> None:
    made = job(resources={})
    made["metadata"] = {"generateName": "train-", "namespace": "team-a"}
    made["spec"]["template"]["metadata"]["annotations"] = {"gpu-fraction": "x"}
    (warning,) = decision_on(made, index).warnings
    assert "team-a/train-: " in warning


def test_annotation_that_a_template_requests_as_a_resource_is_reported() -> None:
    (warning,) = decision_on(job(resources={"limits": {"nvidia.com/gpu-fraction": "1"}})).warnings
    assert "resource nvidia.com/gpu-fraction is not read; did you mean the annotation" in warning
