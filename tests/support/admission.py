"""Pods as the API server sends them for review, and pods after a decision's patch."""

import copy
import json
from typing import Any, Self

import jsonpatch

from extender.api.events import Synced, Upserted
from extender.api.kinds import GpuProject, GpuProjectSpec
from extender.api.objects import ObjectMeta
from webhooks.mutate import decide
from webhooks.projects import ProjectIndex
from webhooks.review import Decision, Request, read

Document = dict[str, Any]


class PodDocument:
    """Builds a Pod's JSON: `pod().noted(gpu_fraction="0.5")`."""

    def __init__(self, name: str = "train-1", namespace: str = "team-a") -> None:
        self.namespace = namespace
        self.body: Document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "containers": [{"name": "main", "image": "i", "resources": {}}],
                "schedulerName": "default-scheduler",
                "priority": 0,
                "preemptionPolicy": "PreemptLowerPriority",
            },
        }

    def noted(self, notes: dict[str, str]) -> Self:
        """Adds annotations."""
        self.body["metadata"].setdefault("annotations", {}).update(notes)
        return self

    def labelled(self, labels: dict[str, str]) -> Self:
        """Adds labels."""
        self.body["metadata"].setdefault("labels", {}).update(labels)
        return self

    def with_spec(self, **fields: Any) -> Self:
        """Sets fields of the spec, named as in JSON."""
        self.body["spec"].update(fields)
        return self

    def asking(self, resource: str, amount: str, container: int = 0) -> Self:
        """Adds a request and limit to a container, which is created if it is missing."""
        containers = self.body["spec"]["containers"]
        while len(containers) <= container:
            containers.append({"name": f"c{len(containers)}", "image": "i", "resources": {}})
        for key in ("requests", "limits"):
            containers[container]["resources"].setdefault(key, {})[resource] = amount
        return self

    def owned_by(self, kind: str) -> Self:
        """Gives the pod a controlling owner."""
        owner = {"apiVersion": "v1", "kind": kind, "name": "o", "uid": "u", "controller": True}
        self.body["metadata"]["ownerReferences"] = [owner]
        return self


def pod(name: str = "train-1", namespace: str = "team-a") -> PodDocument:
    """A pod without requests."""
    return PodDocument(name, namespace)


def review_body(document: Document, namespace: str = "team-a", operation: str = "CREATE") -> bytes:
    """The AdmissionReview that the API server posts when a pod is created."""
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "name": document["metadata"].get("name", ""),
        "namespace": namespace,
        "operation": operation,
        "object": document,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(review).encode()


def request_for(built: PodDocument) -> Request:
    """The pod's creation, decoded."""
    return read(review_body(built.body, built.namespace))


def project(name: str, *namespaces: str, uid: str = "", **fields: Any) -> GpuProject:
    """A GpuProject of department `research` that lists the namespaces."""
    spec = GpuProjectSpec(department="research", namespaces=list(namespaces), **fields)
    return GpuProject(metadata=ObjectMeta(name=name, uid=uid or f"uid-{name}"), spec=spec)


def index_of(*projects: GpuProject) -> ProjectIndex:
    """A synced index of these projects."""
    index = ProjectIndex()
    for each in projects:
        index.deliver(Upserted(each))
    index.deliver(Synced(GpuProject))
    return index


def usual_index() -> ProjectIndex:
    """One project, `vision`, of namespace `team-a`."""
    return index_of(project("vision", "team-a"))


def decision_on(built: PodDocument, index: ProjectIndex | None = None) -> Decision:
    """The webhook's decision on the pod's creation."""
    return decide(request_for(built), index or usual_index())


def refusal(built: PodDocument, index: ProjectIndex | None = None) -> str:
    """The message with which the pod is refused."""
    decision = decision_on(built, index)
    assert not decision.is_allowed
    assert decision.code in (403, 422)
    return decision.message


def stored(built: PodDocument, index: ProjectIndex | None = None) -> Document:
    """The pod after the decision's patch, which a third-party library applies."""
    decision = decision_on(built, index)
    assert decision.is_allowed, decision.message
    patched: Document = jsonpatch.apply_patch(copy.deepcopy(built.body), list(decision.ops))
    return patched
