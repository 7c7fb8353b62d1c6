"""Owners as users write them, as the API server returns them, and the pods that they create."""

import asyncio
import json
from typing import Any

import yaml

from extender.api.objects import ObjectMeta
from extender.kube.errors import KubeError, NotFound
from tests.support.admission import PodDocument, request_for
from webhooks.mutate import read_pod
from webhooks.owners.origin import Origin
from webhooks.owners.reader import OwnerReader
from webhooks.owners.table import BY_KIND
from webhooks.owners.trace import trace
from webhooks.review import Decision

Document = dict[str, Any]
NAMESPACE = "team-a"


def written(text: str, **meta: Any) -> Document:
    """The owner in a YAML text, as stored in `team-a` with the UID `uid-<name>`."""
    document: Document = yaml.safe_load(text)
    own = document["metadata"]
    document["metadata"] = {"namespace": NAMESPACE, "uid": f"uid-{own['name']}"} | own | meta
    return document


def reference(owner: Document) -> Document:
    """The owner reference of the owner's children."""
    meta = owner["metadata"]
    named = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
    return named | {"name": meta["name"], "uid": meta["uid"], "controller": True}


def unread(api_version: str, kind: str, name: str) -> Document:
    """An owner that is used only for its reference."""
    return written(f"{{apiVersion: {api_version}, kind: {kind}, metadata: {{name: {name}}}}}")


def child(owner: Document, labels: dict[str, str] | None = None, name: str = "p-0") -> PodDocument:
    """A pod with one GPU that `owner` creates."""
    made = PodDocument(name, NAMESPACE).asking("nvidia.com/gpu", "1").labelled(labels or {})
    made.body["metadata"]["ownerReferences"] = [reference(owner)]
    return made


class Shelf:
    """Stands for the API server: returns stored owners and records the requests."""

    def __init__(self, *owners: Document) -> None:
        self.asked: list[str] = []
        self.bodies: dict[str, bytes] = {}
        #: The error with which every GET fails.
        self.error: KubeError | None = None
        for owner in owners:
            self.put(owner)

    def put(self, owner: Document) -> None:
        """Stores the owner, or replaces one of the same name."""
        group, _, version = owner["apiVersion"].rpartition("/")
        meta = owner["metadata"]
        plural = BY_KIND[group, owner["kind"]].plural
        path = f"/apis/{group}/{version}/namespaces/{meta['namespace']}/{plural}/{meta['name']}"
        self.bodies[path] = json.dumps(owner).encode()

    async def get(self, path: str) -> bytes:
        """The body of a GET."""
        self.asked.append(path)
        if self.error is not None:
            raise self.error
        if path not in self.bodies:
            raise NotFound(f"{path}: 404")
        return self.bodies[path]


def meta_of(built: PodDocument) -> ObjectMeta:
    """The pod's metadata as the webhook reads it."""
    pod = read_pod(request_for(built))
    assert not isinstance(pod, Decision)
    return pod.metadata


def origin_of(built: PodDocument, *owners: Document) -> Origin:
    """The origin that is found for the pod if the API server has `owners`."""
    return asyncio.run(trace(meta_of(built), OwnerReader(Shelf(*owners).get).read))
