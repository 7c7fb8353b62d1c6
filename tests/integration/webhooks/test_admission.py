"""Pods through the real API server, with the webhook as installed."""

import contextlib
import json
from typing import Any

import pytest

from extender.api import aliases, demand, names
from tests.integration.webhooks.conftest import SEEN_S, Admission, manifest
from tests.support.controlplane.admin import ApiRefusedError
from tests.support.controlplane.handles import wait_for
from tests.support.hostile import hostile_counts, hostile_fractions
from webhooks import vocabulary

HALF = {"gpu-fraction": "0.5"}


def test_half_a_card_comes_out_gated_labelled_and_counted(admission: Admission) -> None:
    pod = admission.create(manifest("half", HALF))
    resources = pod["spec"]["containers"][0]["resources"]
    assert pod["metadata"]["labels"][names.LABEL_PROJECT] == "vision"
    assert pod["metadata"]["labels"][names.LABEL_DEPARTMENT] == "research"
    assert pod["spec"]["schedulingGates"] == [{"name": names.GATE}]
    assert pod["spec"]["schedulerName"] == names.SCHEDULER_NAME
    assert resources["requests"] == resources["limits"] == {names.GPU_MILLI: "500"}
    gpu_nodes = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    assert gpu_nodes in pod["spec"]["tolerations"]
    (condition,) = pod["status"]["conditions"]
    assert condition["reason"] == "SchedulingGated"


@pytest.mark.parametrize(
    ("labels", "spec", "priority_class", "priority"),
    [
        ({}, {}, "ballast-training", 50),
        ({names.LABEL_WORKLOAD_KIND: "inference"}, {}, "ballast-inference", 125),
        ({}, {"priorityClassName": "ballast-build"}, "ballast-build", 100),
    ],
)
def test_priority_agrees_with_its_class(
    admission: Admission,
    labels: dict[str, str],
    spec: dict[str, Any],
    priority_class: str,
    priority: int,
) -> None:
    asked = manifest("one", HALF, **spec)
    asked["metadata"]["labels"] = labels
    pod = admission.create(asked, is_stored=False)
    assert (pod["spec"]["priorityClassName"], pod["spec"]["priority"]) == (priority_class, priority)


def test_default_class_of_the_cluster_gives_way_to_that_of_the_kind(admission: Admission) -> None:
    path, kind = "/apis/scheduling.k8s.io/v1/priorityclasses", "PriorityClass"
    usual = {"apiVersion": "scheduling.k8s.io/v1", "kind": kind, "value": 1000}
    admin = admission.api.control_plane.admin
    admin.post(path, usual | {"metadata": {"name": "usual"}, "globalDefault": True})
    asked = manifest("one", HALF)
    asked["metadata"]["labels"] = {names.LABEL_WORKLOAD_KIND: "interactive"}
    try:
        wait_for(
            lambda: admission.create(manifest("plain"), is_stored=False)["spec"]["priority"] > 0,
            SEEN_S,
            "the class in pods without a class",
        )
        wait_for(
            lambda: admission.create(asked, is_stored=False)["spec"]["priority"] == 75,
            SEEN_S,
            "the class of the kind in its place",
        )
    finally:
        admission.api.kubectl("delete", "priorityclass", "usual")


def test_every_hostile_number_is_refused_with_a_sentence(admission: Admission) -> None:
    tried = [
        *(({"gpu-fraction": text}, 'such as \\"0.5\\"') for text in hostile_fractions()),
        *(({"gpu-memory": text}, "whole number from 1 to 999999999") for text in hostile_counts()),
    ]
    taken = [
        notes
        for notes, sentence in tried
        if sentence not in admission.refusal(manifest("hostile", notes))
    ]
    assert taken == []
    assert len(tried) > 500


@pytest.mark.parametrize(
    ("pod", "sentence"),
    [
        (manifest("p", {"gpu-fraction": "0.5", "gpu-memory": "8192"}), "use one of them"),
        (
            manifest("p", HALF | {names.ANNOTATION_CARDS: "0:500:1"}),
            "only Ballast writes ballast.dev/cards:",
        ),
        (manifest("p", HALF, priorityClassName="system-node-critical"), "is not allowed"),
        (
            manifest("p", schedulingGates=[{"name": names.GATE}]),
            "remove the scheduling gate",
        ),
    ],
)
def test_refusal_reaches_the_author(
    admission: Admission, pod: dict[str, Any], sentence: str
) -> None:
    assert sentence in admission.refusal(pod)


def test_pod_of_a_controller_is_changed_like_any_other(admission: Admission) -> None:
    template = manifest("ignored", HALF, restartPolicy="Never")
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {
            "template": {
                "metadata": {"annotations": HALF},
                "spec": template["spec"],
            }
        },
    }
    admin, namespace = admission.api.control_plane.admin, admission.api.namespace
    admin.post(f"/apis/batch/v1/namespaces/{namespace}/jobs", job)
    pods: list[dict[str, Any]] = []
    path = f"/api/v1/namespaces/{namespace}/pods?labelSelector=batch.kubernetes.io/job-name=train"

    def has_pod() -> bool:
        pods[:] = admin.get(path)["items"]
        return bool(pods)

    wait_for(has_pod, SEEN_S, "the job's pod")
    assert pods[0]["spec"]["schedulingGates"] == [{"name": names.GATE}]
    assert pods[0]["metadata"]["labels"][names.LABEL_PROJECT] == "vision"


def test_changed_pod_made_again_stays_as_it_is(admission: Admission) -> None:
    first = admission.create(manifest("first", HALF))
    copied = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "second",
            "labels": first["metadata"]["labels"],
            "annotations": first["metadata"]["annotations"],
        },
        "spec": first["spec"],
    }
    second = admission.create(copied)
    assert second["spec"] == first["spec"]
    assert second["metadata"]["labels"] == first["metadata"]["labels"]


def test_pod_that_says_nothing_of_gpus_is_not_even_sent(admission: Admission) -> None:
    before = admission.n_reviews()
    pod = admission.create(manifest("plain", {"note": "x"}))
    assert not _is_sent(admission, manifest("plain"), "jobs")
    assert not _is_sent(admission, manifest("plain"), "cronjobs")
    assert admission.n_reviews() == before
    assert "labels" not in pod["metadata"]
    assert "schedulingGates" not in pod["spec"]


def test_pod_of_the_system_is_not_sent(admission: Admission) -> None:
    before = admission.n_reviews()
    for namespace in ("kube-system", "ballast-system"):
        admission.api.control_plane.make_namespace(namespace)
        path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
        probe = manifest("system", {"gpu-fraction": "nonsense"})
        probe["spec"]["securityContext"] = {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        probe["spec"]["containers"][0]["securityContext"] = {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
        admission.api.control_plane.admin.post(path, probe)
    assert admission.n_reviews() == before


@pytest.mark.parametrize("plural", ["pods", "jobs", "cronjobs"])
def test_every_word_that_we_read_gets_a_pod_or_its_template_sent(
    admission: Admission, plural: str
) -> None:
    notes = [*demand.GPU_ANNOTATIONS, *aliases.MIN_MEMBER_KEYS[:1], demand.COMPUTE_LIMIT]
    notes += [
        "nvidia.com/container.main.gpu-memory.request",
        "GPU-Fraction",
        "nvidia.com/gpu-fraction",
        "run.ai/gpu-memory",
    ]
    labels = [
        "run.ai/gpu-fraction",
        "sharedgpu/gpu_request",
        *aliases.PROJECT_LABELS,
        *aliases.GROUP_LABELS,
        *aliases.PREEMPTIBILITY_LABELS,
    ]
    words = [manifest("word", {key: "0.5"}) for key in notes]
    for key in labels:
        labelled = manifest("word")
        labelled["metadata"]["labels"] = {key: "vision"}
        words.append(labelled)
    foreign = [word for dialect in vocabulary.DIALECTS for word in dialect.words]
    for resource in (
        *demand.GPU_RESOURCES,
        *foreign,
        "nvidia.com/gpu-10gb",
        "nvidia.com/mig-1g.5gb",
        "runai/gpu-fraction",
    ):
        asking = manifest("word")
        asking["spec"]["containers"][0]["resources"] = {"limits": {resource: "1"}}
        words.append(asking)
    words.append(manifest("word", schedulerName=names.SCHEDULER_NAME))
    missed = [word for word in words if not _is_sent(admission, word, plural)]
    assert missed == []


def _is_sent(admission: Admission, pod: dict[str, Any], plural: str) -> bool:
    """Whether the API server sends the pod, or an object with this template of it, for review."""
    path, body = "/api/v1", pod
    if plural != "pods":
        path, spec = "/apis/batch/v1", pod["spec"] | {"restartPolicy": "Never"}
        job = {"spec": {"template": {"metadata": pod["metadata"], "spec": spec}}}
        body = {"metadata": {"name": "word"}, **job}
        if plural == "cronjobs":
            body["spec"] = {"schedule": "@daily", "jobTemplate": job}
    before = admission.n_reviews()
    with contextlib.suppress(ApiRefusedError):
        url = f"{path}/namespaces/{admission.api.namespace}/{plural}?dryRun=All"
        admission.api.control_plane.admin.post(url, body)
    return admission.n_reviews() > before


def test_dead_webhook_stops_no_pod(admission: Admission) -> None:
    admission.program.kill()
    try:
        pod = admission.create(manifest("unseen", HALF))
    finally:
        admission.program.start()
    assert "schedulingGates" not in pod["spec"]


@pytest.fixture
def owner(admission: Admission) -> list[dict[str, Any]]:
    """An object that could be the controller of a pod."""
    api = admission.api
    api.kubectl("create", "configmap", "owner", "-n", api.namespace)
    made = api.control_plane.admin.get(f"/api/v1/namespaces/{api.namespace}/configmaps/owner")
    kind = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "controller": True}
    return [kind | {"uid": made["metadata"]["uid"]}]


def test_only_pods_that_nobody_applies_lack_the_record_of_field_managers(
    admission: Admission, owner: list[dict[str, Any]]
) -> None:
    by_user, by_controller = manifest("by-user", HALF), manifest("by-controller", HALF)
    by_controller["metadata"]["ownerReferences"] = owner
    for each in (by_user, by_controller):
        admission.create(each)
    applied = by_controller | {"metadata": by_controller["metadata"] | {"name": "applied"}}
    kubectl, namespace = admission.api.kubectl, admission.api.namespace
    kubectl("apply", "--server-side", "-n", namespace, "-f", "-", stdin=json.dumps(applied))
    later = '{"metadata": {"labels": {"later": "yes"}}}'
    kubectl("patch", "pods", "-n", namespace, "by-user", "by-controller", "applied", "-p", later)

    def managers(name: str) -> set[str]:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        meta = admission.api.control_plane.admin.get(path)["metadata"]
        assert meta["labels"]["later"] == "yes"
        return {each["operation"] for each in meta.get("managedFields", ())}

    assert managers("by-controller") == set()
    assert managers("by-user") == {"Update"}
    assert managers("applied") == {"Apply", "Update"}
