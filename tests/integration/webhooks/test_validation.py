"""Our kinds on the real API server, with the webhook as installed: what kubectl shows."""

import json
import subprocess
from typing import Any

import pytest

from tests.integration.webhooks.conftest import SEEN_S, Admission, apply_body, manifest
from tests.support.controlplane.handles import wait_for

Body = dict[str, Any]


def apply(admission: Admission, kind: str, name: str, spec: Body, *, dry: bool = True) -> str:
    """What kubectl says, warnings included; the API server's words where it refuses."""
    body = {"apiVersion": "ballast.dev/v1alpha1", "kind": kind, "spec": spec}
    body["metadata"] = {"name": name, "namespace": admission.api.namespace}
    return apply_body(admission, body, dry=dry)


@pytest.fixture(scope="module")
def queues(admission: Admission) -> Admission:
    """A department with a limit, and a node pool, that the webhook knows."""
    pools = [{"name": "default", "gpu": {"quota": 4, "limit": 8}}]
    apply(admission, "GpuDepartment", "research", {"nodePools": pools}, dry=False)
    apply(admission, "GpuNodePool", "a100", {"nodeSelector": {"gpu": "a100"}}, dry=False)

    def is_known() -> bool:
        said = apply(admission, "GpuNodePool", "b100", {"nodeSelector": {"gpu": "a100", "x": "y"}})
        too_much = apply(admission, "GpuProject", "vision", spec(admission, quota=9))
        return "would have no node" in said and "cannot be reached" in too_much

    wait_for(is_known, SEEN_S, "the department and the node pool in the webhook")
    return admission


def spec(admission: Admission, **gpu: Any) -> Body:
    figures = {"name": "default", "gpu": gpu}
    namespaces = [admission.api.namespace]
    return {"department": "research", "namespaces": namespaces, "nodePools": [figures]}


def test_impossible_quota_is_refused_with_what_is_accepted(queues: Admission) -> None:
    said = apply(queues, "GpuProject", "vision", spec(queues, quota=9))
    assert "9 cannot be reached: the limit of department research is 8" in said
    assert "such as quota: 8" in said


def test_odd_quota_is_stored_with_a_warning(queues: Admission) -> None:
    said = apply(queues, "GpuProject", "vision", spec(queues, quota=5))
    assert "Warning: spec.nodePools[default].gpu.quota: 5 is above the quota of department" in said
    assert "project.ballast.dev/vision configured" in said


def test_group_of_the_project_is_made_and_of_another_is_not(queues: Admission) -> None:
    assert "podgroup.ballast.dev/g created" in apply(queues, "GpuPodGroup", "g", {"minMember": 2})
    circle = [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}]
    assert "form a cycle of parents" in apply(queues, "GpuPodGroup", "g", {"subGroups": circle})


def test_pod_above_the_limit_of_its_department_is_refused(queues: Admission) -> None:
    apply(queues, "GpuProject", "vision", spec(queues, quota=4), dry=False)
    body = manifest("large")
    body["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "16"}}

    def is_refused() -> bool:
        return "department research may have at most 8" in queues.refusal(body)

    wait_for(is_refused, SEEN_S, "the project's pools in the webhook")


def test_share_in_the_words_of_others_is_made_in_ours(queues: Admission) -> None:
    body = manifest("hami")
    asked = {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4096"}}
    body["spec"]["containers"][0]["resources"] = asked
    made = queues.create(body)
    assert made["metadata"]["annotations"]["gpu-memory"] == "4096"
    limits = made["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"ballast.dev/gpu-milli": "1"}
    # The author's file has resources that the stored pod has no more.
    body["metadata"]["namespace"] = queues.api.namespace
    assert "pod updates may not change fields" in apply_body(queues, body)


def test_ephemeral_container_is_shown_no_card(queues: Admission) -> None:
    queues.create(manifest("shared", {"gpu-fraction": "0.5"}))
    guest = {"name": "debug", "image": "i"}
    queues.api.kubectl(
        "patch",
        "pod",
        "shared",
        f"--namespace={queues.api.namespace}",
        "--subresource=ephemeralcontainers",
        "--type=strategic",
        "-p",
        json.dumps({"spec": {"ephemeralContainers": [guest]}}),
    )
    path = f"/api/v1/namespaces/{queues.api.namespace}/pods/shared"
    pod = queues.api.control_plane.admin.get(path)
    hidden = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
    assert pod["spec"]["ephemeralContainers"][0]["env"] == [hidden]
    assert pod["spec"]["containers"][0]["env"] == [hidden]


def test_deletion_of_a_department_in_use_is_warned_of(queues: Admission) -> None:
    plane = queues.api.control_plane
    kubectl = [plane.program("kubectl"), f"--kubeconfig={plane.kubeconfig}"]
    argv = [*kubectl, "delete", "gpudepartment", "research", "--dry-run=server"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert "Warning: metadata.name: projects vision belong to department research" in done.stderr


def test_author_of_a_deployment_is_told_what_becomes_of_its_pods(admission: Admission) -> None:
    container = {"name": "main", "image": "example.invalid/none"}
    labels = {"app": "llm"}
    template: Body = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    body: Body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "llm", "namespace": admission.api.namespace},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    notes = {"annotations": {"gpu-fraction": "0.5"}}
    misplaced = body | {"metadata": {**body["metadata"], **notes}}
    wait_for(
        lambda: "gpu-fraction has no effect on a Deployment" in apply_body(admission, misplaced),
        SEEN_S,
        "a warning about a word that is not on the template",
    )
    template["metadata"]["annotations"] = {"gpu-fraction": "nonsense"}
    assert "its pods will be refused: InvalidRequest" in apply_body(admission, body)


def test_author_of_a_pod_without_a_controller_is_told_what_an_eviction_means(
    admission: Admission,
) -> None:
    body = manifest("alone", {"gpu-fraction": "0.5"})
    body["metadata"]["namespace"] = admission.api.namespace
    assert "Warning: this pod may be evicted for other work, and no controller" in apply_body(
        admission, body
    )


def test_author_of_a_job_without_a_project_reads_what_a_pod_draws(admission: Admission) -> None:
    namespace = "unlisted"
    admission.api.control_plane.make_namespace(namespace)
    gpu = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    container = {"name": "main", "image": "example.invalid/none"} | gpu
    spec: Body = {"restartPolicy": "Never", "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": spec}
    job = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": spec}}}
    for body in (pod, job):
        named = body | {"metadata": {"name": "train", "namespace": namespace}}
        said = apply_body(admission, named)
        assert f"Warning: Ballast leaves this GPU request alone: namespace {namespace}" in said
