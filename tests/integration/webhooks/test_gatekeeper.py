"""Gatekeeper beside Ballast: rules of its own that change and check pods, and fail closed. Skipped
unless `make gatekeeper` has built it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from extender.api import names
from tests.integration.cycle.two_projects import Scene
from tests.integration.inference.deployments import opened_with_webhooks, started
from tests.integration.manifests.repository import N_PODS, objects
from tests.support import gatekeeper as program
from tests.support.controlplane.admin import ApiRefusedError
from tests.support.controlplane.handles import Cluster
from tests.support.gatekeeper.running import Gatekeeper
from tests.support.overlays import of_kind, rendered

pytestmark = pytest.mark.skipif(
    not program.PROGRAMS.has(), reason="no Gatekeeper: make gatekeeper builds it"
)
CARDS: Final = 4
MUTATIONS: Final = "mutations.gatekeeper.sh/v1"
ON_PODS: Final = {"scope": "Namespaced", "kinds": [{"apiGroups": [""], "kinds": ["Pod"]}]}
PODS: Final = [{"groups": [""], "versions": ["v1"], "kinds": ["Pod"]}]
LIMITS: Final = {"cpu": "1", "memory": "1Gi"}
#: Limits and labels that a pod must have, and what lets it out of its container.
RULES: Final = """
package podrules
pod := input.review.object
violation[{"msg": msg}] {
  container := pod.spec.containers[_]
  resource := input.parameters.limits[_]
  not container.resources.limits[resource]
  msg := sprintf("container %v has no limit of %v", [container.name, resource])
}
violation[{"msg": msg}] {
  label := input.parameters.labels[_]
  not pod.metadata.labels[label]
  msg := sprintf("label %v is missing", [label])
}
violation[{"msg": "is privileged"}] { pod.spec.containers[_].securityContext.privileged }
violation[{"msg": "uses hostPath"}] { pod.spec.volumes[_].hostPath }
violation[{"msg": msg}] {
  field := ["hostNetwork", "hostPID", "hostIPC"][_]
  pod.spec[field]
  msg := sprintf("uses %v", [field])
}
"""


@pytest.fixture
async def scene(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Scene]:
    """Two nodes of four cards, and Gatekeeper with rules that change pods, and with a template."""
    async with (
        opened_with_webhooks(cluster, CARDS, tmp_path) as opened,
        started(Gatekeeper(opened.plane, tmp_path)) as made,
    ):
        apply(opened, template(), *mutations())
        yield opened
        assert made.is_alive


def apply(scene: Scene, *documents: dict[str, Any]) -> None:
    text = yaml.safe_dump_all(documents)
    scene.cluster.kubectl("apply", "--server-side", "-f-", stdin=text)


def mutations() -> list[dict[str, Any]]:
    """A label, a toleration, and limits for containers without them."""
    label = {"location": "metadata.labels.team", "parameters": {"assign": {"value": "a"}}}
    value = {"key": "team", "operator": "Exists"}
    added = {"location": "spec.tolerations[key:team]", "parameters": {"assign": {"value": value}}}
    rules = [("AssignMetadata", "team", label), ("Assign", "tolerates", added)]
    for resource, limit in LIMITS.items():
        at = f"spec.containers[name:*].resources.limits.{resource}"
        unless = [{"subPath": at, "condition": "MustNotExist"}]
        parameters = {"pathTests": unless, "assign": {"value": limit}}
        rules.append(("Assign", resource, {"location": at, "parameters": parameters}))
    return [
        {
            "apiVersion": MUTATIONS,
            "kind": kind,
            "metadata": {"name": name},
            "spec": {"match": ON_PODS, **({"applyTo": PODS} if kind == "Assign" else {}), **spec},
        }
        for kind, name, spec in rules
    ]


def template() -> dict[str, Any]:
    texts = {"type": "array", "items": {"type": "string"}}
    schema = {"type": "object", "properties": {"limits": texts, "labels": texts}}
    kind = {"names": {"kind": "PodRules"}, "validation": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "templates.gatekeeper.sh/v1",
        "kind": "ConstraintTemplate",
        "metadata": {"name": "podrules"},
        "spec": {
            "crd": {"spec": kind},
            "targets": [{"target": "admission.k8s.gatekeeper.sh", "rego": RULES}],
        },
    }


async def require(scene: Scene, name: str, **parameters: list[str]) -> None:
    """Add a constraint on pods; it is in force when a pod that says nothing is refused by it."""
    body = {
        "apiVersion": "constraints.gatekeeper.sh/v1beta1",
        "kind": "PodRules",
        "metadata": {"name": name},
        "spec": {"match": {"kinds": ON_PODS["kinds"]}, "parameters": parameters},
    }
    where = "/apis/constraints.gatekeeper.sh/v1beta1/podrules"
    await scene.until(lambda: scene.admin.has(where), "the kind of the constraint")
    apply(scene, body)
    bad = {"hostPID": True, "containers": [{"name": "main", "image": "example.invalid/none"}]}
    await scene.until(
        lambda: f"[{name}] uses hostPID" in refusal(scene, "team-a", {}, bad), "the constraint"
    )


def refusal(scene: Scene, namespace: str, labels: dict[str, str], spec: dict[str, Any]) -> str:
    """Why no such pod can be created; empty if it can."""
    body = {"metadata": {"name": "tried", "labels": labels}, "spec": spec}
    try:
        scene.admin.post(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", body)
    except ApiRefusedError as error:
        return str(error)
    return ""


async def test_pods_that_are_changed_and_checked_have_their_cards(scene: Scene) -> None:
    await require(scene, "all", limits=list(LIMITS), labels=["team"])
    apply(scene, *objects())
    await scene.until_bound("team-a", N_PODS)
    for pod in scene.admin.get("/api/v1/namespaces/team-a/pods")["items"]:
        limits = pod["spec"]["containers"][0]["resources"]["limits"]
        assert LIMITS.items() <= limits.items()
        assert limits[names.GPU_MILLI] in ("500", "1k")
        assert {"team", names.NVIDIA_GPU} <= {each["key"] for each in pod["spec"]["tolerations"]}


async def test_release_that_a_new_rule_refuses_succeeds_once_the_rule_is_gone(scene: Scene) -> None:
    await require(scene, "all", limits=list(LIMITS))
    scene.submit_job("team-a", "first", 2 * CARDS, 1000)
    await scene.until_bound("team-a", 2 * CARDS)
    scene.submit_pod("team-a", "waits", 1000)
    await scene.until_decided(3)
    await require(scene, "owners", labels=["owner"])
    scene.cluster.kubectl("delete", "job", "first", "-n", "team-a")
    await scene.until_told("team-a", "ReleaseRefused", "waits")
    (told,) = {e["note"] for e in scene.full_events("team-a") if e["reason"] == "ReleaseRefused"}
    assert "label owner is missing" in told
    scene.cluster.kubectl("delete", "podrules", "owners")
    await scene.until_bound("team-a", 1)


async def test_of_ballasts_own_pods_only_the_node_agent_uses_the_host(scene: Scene) -> None:
    documents = rendered("default")
    apply(scene, *of_kind(documents, "Namespace", "ServiceAccount", "PriorityClass"))
    await require(scene, "all")
    refused = {}
    for each in of_kind(documents, "Deployment", "DaemonSet"):
        pod, where = each["spec"]["template"], each["metadata"]["namespace"]
        if why := refusal(scene, where, pod["metadata"]["labels"], pod["spec"]):
            refused[each["metadata"]["name"]] = why
    assert list(refused) == ["ballast-agent"]
    assert "uses hostPID" in refused["ballast-agent"]
