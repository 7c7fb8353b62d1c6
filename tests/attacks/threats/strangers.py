"""T16: reviews that are not from the API server. Any client may send them; they have no effect."""

import json
from collections.abc import Iterator
from typing import Final

from tests.attacks.attempt import Body, half
from tests.support.admission import review_body

#: Texts that no answer may have.
SECRETS: Final = ("sesame", "PRIVATE KEY", "Traceback", "kubeconfig", "treasure")


def strangers() -> Iterator[tuple[str, str, bytes]]:
    """Title, path and body (empty: GET)."""
    asked = half("x")
    for namespace in ("team-a", "kube-system", "../team-a", ""):
        yield f"a review for {namespace!r}", "/mutate", review_body(asked, namespace)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "../../../api/v1/secrets", "uid": "u"}
    owned = half("x", meta={"ownerReferences": [owner | {"controller": True}]})
    yield "a review that leads to a Secret", "/mutate", review_body(owned, "team-a")
    for operation in ("UPDATE", "DELETE", "CONNECT", "x"):
        yield f"a review of {operation}", "/mutate", review_body(asked, "team-a", operation)
    yield "another version", "/mutate", _version("admission.k8s.io/v1beta1")
    yield "no review", "/mutate", b"{}"
    yield "deep JSON", "/mutate", b"[" * 10**6
    yield "a review of a project", "/validate", _of_project()
    yield "a path of files", "/../../etc/passwd", b""
    yield "a debugger", "/debug/pprof/", b""


def _version(version: str) -> bytes:
    review: Body = json.loads(review_body(half("x")))
    return json.dumps(review | {"apiVersion": version}).encode()


def _of_project() -> bytes:
    review: Body = json.loads(review_body(half("x")))
    review["request"]["kind"] = {
        "group": "ballast.dev",
        "version": "v1alpha1",
        "kind": "GpuProject",
    }
    review["request"]["object"] = {"metadata": {"name": "x"}, "spec": {"namespaces": ["team-a"]}}
    return json.dumps(review).encode()
