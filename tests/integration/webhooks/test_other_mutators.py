"""Pods that other webhooks change after ours, as injectors of side-cars and policy engines do.

The API server calls webhooks in the order of their configurations' names.
"""

import base64
import contextlib
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from extender.api import names
from tests.integration.webhooks.conftest import CONFIGURATIONS, SEEN_S, Admission, manifest
from tests.support.controlplane.admin import ApiRefusedError
from tests.support.controlplane.certificates import Authority
from tests.support.controlplane.handles import wait_for
from tests.support.controlplane.ports import LOOPBACK

SEEN = "example.com/seen"
Operations = list[dict[str, Any]]


def add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


class Mutator:
    """A webhook that makes `ops` to every pod, once."""

    def __init__(self, folder: Path) -> None:
        self.ops: Operations = []
        authority = Authority("mutator-ca")
        pair = authority.serving(["mutator"], [LOOPBACK])
        for name, data in (("tls.crt", pair.certificate), ("tls.key", pair.key)):
            (folder / name).write_bytes(data)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        self._server = HTTPServer((LOOPBACK, 0), self._handler())
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.bundle = base64.b64encode(authority.certificate).decode()
        self.url = f"https://{LOOPBACK}:{self._server.server_port}"

    def configuration(self, name: str, namespace: str) -> dict[str, Any]:
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
        webhook = {
            "name": "pods.example.com",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": self.url, "caBundle": self.bundle},
            "rules": [rule | {"resources": ["pods"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "sideEffects": "None",
        }
        kind = {"apiVersion": "admissionregistration.k8s.io/v1"}
        kind["kind"] = "MutatingWebhookConfiguration"
        return kind | {"metadata": {"name": name}, "webhooks": [webhook]}

    def close(self) -> None:
        self._server.shutdown()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        mutator = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                review = request["request"]
                ops = mutator.changes(review["object"])
                patch = base64.b64encode(json.dumps(ops).encode()).decode()
                response = {"uid": review["uid"], "allowed": True}
                response |= {"patchType": "JSONPatch", "patch": patch} if ops else {}
                body = json.dumps(request | {"response": response, "request": None}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_args: object) -> None:
                return

        return Handler

    def changes(self, pod: dict[str, Any]) -> Operations:
        notes = pod["metadata"].get("annotations")
        if SEEN in (notes or {}):
            return []
        seen = SEEN.replace("/", "~1")
        first = [] if notes is not None else [add("/metadata/annotations", {})]
        return [*first, add(f"/metadata/annotations/{seen}", "1"), *self.ops]


#: Names of configurations: one webhook is called before ours, one after.
EARLIER, LATER = "another", "zealous"
POLICY = "MutatingAdmissionPolicy"


@pytest.fixture(params=[EARLIER, LATER])
def mutator(
    request: pytest.FixtureRequest, policies: Admission, tmp_path: Path
) -> Iterator[Mutator]:
    """Another webhook; the policies are in force."""
    made = Mutator(tmp_path)
    admin = policies.api.control_plane.admin
    admin.post(CONFIGURATIONS, made.configuration(request.param, policies.api.namespace))

    def is_called() -> bool:
        with contextlib.suppress(ApiRefusedError):
            tried = policies.create(manifest("probe"), is_stored=False)
            return SEEN in tried["metadata"].get("annotations", {})
        return False

    try:
        wait_for(is_called, SEEN_S, "the webhook to be called")
        yield made
    finally:
        admin.delete(f"{CONFIGURATIONS}/{request.param}")
        wait_for(lambda: not is_called(), SEEN_S, "the webhook to be called no more")
        made.close()


GPU = {"limits": {names.NVIDIA_GPU: "1"}, "requests": {names.NVIDIA_GPU: "1"}}
HALF = {"gpu-fraction": "0.5"}


def whole() -> dict[str, Any]:
    """A pod with one GPU."""
    pod = manifest("whole")
    pod["spec"]["containers"][0]["resources"] = GPU
    return pod


def milli(pod: dict[str, Any]) -> int:
    """The milli-GPU of all containers."""
    found = (each.get("resources", {}) for each in pod["spec"]["containers"])
    written = (each.get("limits", {}).get(names.GPU_MILLI, "0") for each in found)
    return sum(int(each.replace("k", "000")) for each in written)


@pytest.mark.parametrize(
    "change",
    [
        add("/spec/containers/0", {"name": "proxy", "image": "example.invalid/none"}),
        add("/spec/initContainers", [{"name": "init", "image": "example.invalid/none"}]),
        add("/spec/tolerations", [{"key": "team", "operator": "Exists"}]),
        add("/spec/nodeSelector", {"zone": "a"}),
    ],
)
@pytest.mark.parametrize(("asked", "n"), [(whole(), 1000), (manifest("half", HALF), 500)])
def test_whatever_else_is_added_to_a_pod_it_keeps_its_cards(
    admission: Admission, mutator: Mutator, asked: dict[str, Any], n: int, change: dict[str, Any]
) -> None:
    mutator.ops = [change]
    made = admission.create(asked, is_stored=False)
    assert milli(made) == n
    assert made["spec"]["schedulingGates"] == [{"name": names.GATE}]
    assert names.NVIDIA_GPU in [each["key"] for each in made["spec"]["tolerations"]]


ADDED = [
    (add("/spec/containers/0/resources", GPU), 1000),
    (add("/metadata/annotations/gpu-fraction", "0.5"), 500),
]


@pytest.mark.parametrize(("change", "n"), ADDED)
@pytest.mark.parametrize("mutator", [EARLIER], indirect=True)
def test_gpu_request_of_an_earlier_webhook_counts(
    admission: Admission, mutator: Mutator, change: dict[str, Any], n: int
) -> None:
    mutator.ops = [change]
    assert milli(admission.create(manifest("plain"), is_stored=False)) == n


@pytest.mark.parametrize(("change", "n"), ADDED)
@pytest.mark.parametrize("mutator", [LATER], indirect=True)
def test_gpu_request_of_a_later_webhook_counts_if_the_pod_names_its_project(
    admission: Admission, mutator: Mutator, change: dict[str, Any], n: int
) -> None:
    mutator.ops = [change]
    asked = manifest("plain")
    said = admission.refusal(asked)
    assert "another webhook asked for the GPU after it" in said
    asked["metadata"]["labels"] = {names.LABEL_PROJECT: "vision"}
    assert milli(admission.create(asked, is_stored=False)) == n


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (add("/spec/schedulerName", "yunikorn"), "if a webhook set it, exclude the namespace"),
        (
            add("/spec/containers/-", {"name": "two", "image": "none", "resources": GPU}),
            "requests ballast.dev/gpu-milli: 1000, but its nvidia.com/gpu means 2000",
        ),
    ],
)
@pytest.mark.parametrize("mutator", [LATER], indirect=True)
def test_what_a_later_webhook_may_not_change_is_refused_with_a_word(
    admission: Admission, mutator: Mutator, change: dict[str, Any], word: str
) -> None:
    mutator.ops = [change]
    assert word in admission.refusal(whole())


def test_kind_that_a_webhook_sets_determines_the_priority_if_it_is_earlier(
    admission: Admission, mutator: Mutator, request: pytest.FixtureRequest
) -> None:
    kind = {names.LABEL_WORKLOAD_KIND: "interactive"}
    mutator.ops = [add("/metadata/labels", kind)]
    made = admission.create(whole(), is_stored=False)
    assert made["metadata"]["labels"] == made["metadata"]["labels"] | kind
    is_earlier = request.node.callspec.params["mutator"] == EARLIER
    expected = "ballast-interactive" if is_earlier else "ballast-training"
    assert made["spec"]["priorityClassName"] == expected


def mutating_policy(expression: str, operation: str = "CREATE") -> list[dict[str, Any]]:
    """A MutatingAdmissionPolicy for pods, and its binding."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation]}
    spec = {
        "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": [rule | {"resources": ["pods"]}]},
        "mutations": [
            {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": expression},
            }
        ],
    }
    head = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "metadata": {"name": "kinds.example.com"},
    }
    bound = {"kind": f"{POLICY}Binding", "spec": {"policyName": "kinds.example.com"}}
    return [head | {"kind": POLICY, "spec": spec}, head | bound]


def test_mutating_admission_policies_count_as_earlier(policies: Admission) -> None:
    label = f'"{names.LABEL_WORKLOAD_KIND}": "interactive"'
    notes = '"gpu-fraction": "0.5"'
    metadata = f"Object.metadata{{labels: {{{label}}}, annotations: {{{notes}}}}}"
    for each in mutating_policy(f"Object{{metadata: {metadata}}}"):
        policies.api.kubectl("apply", "--server-side", "-f-", stdin=json.dumps(each))

    def is_applied() -> bool:
        made = policies.create(manifest("plain"), is_stored=False)
        return bool(made["spec"].get("priorityClassName") == "ballast-interactive")

    try:
        wait_for(is_applied, SEEN_S, "the kind's class")
        assert milli(policies.create(manifest("plain"), is_stored=False)) == 500
    finally:
        for kind in (f"{POLICY}Binding", POLICY):
            policies.api.kubectl("delete", kind, "kinds.example.com")
