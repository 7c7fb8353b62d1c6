"""T22: secrets. T23: stolen credentials. T24: our programs' images. T26: a rogue node."""

from collections.abc import Iterator
from typing import Any, Final

from extender.api import names
from tests.attacks.attempt import (
    HOME,
    NO_RIGHT,
    NODES,
    OURS,
    PODS,
    VICTIMS,
    Attempt,
    Body,
    container,
    half,
    pod,
)
from tests.attacks.raw_client import MERGE
from tests.attacks.stage import ADMISSION, RBAC

SYSTEM: Final = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}"
CONTROL, SCHEDULER, WEBHOOKS = "ballast-control", "ballast-scheduler", "ballast-webhooks"
DENIED: Final = (NO_RIGHT, "Forbidden", "forbidden")
VICTIM: Final = f"{PODS.format(VICTIMS[0])}/fraction"


def _try(
    threat: str, title: str, method: str, path: str, body: Any = None, **fields: Any
) -> Attempt:
    media = {"media": MERGE} if method == "PATCH" else {}
    return Attempt(threat=threat, title=title, method=method, path=path, body=body,
                   **({"word": DENIED} | media | fields))  # fmt: skip


def secrets() -> Iterator[Attempt]:
    """T22."""
    for actor in ("tenant", "tenant-token", "nobody"):
        for namespace in (names.SYSTEM_NAMESPACE, *VICTIMS):
            folder = f"/api/v1/namespaces/{namespace}/secrets"
            for path in (folder, f"{folder}/treasure", f"{folder}?watch=1"):
                yield _try("T22", f"{actor} reads {path}", "GET", path, actor=actor)
        for name in ("ballast-control", "ballast-scheduler", "ballast-webhooks"):
            path = f"{SYSTEM}/serviceaccounts/{name}/token"
            request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
            yield _try("T22", f"{actor} wants a token of {name}", "POST", path, request,
                       actor=actor)  # fmt: skip
    for actor in ("tenant", "tenant-token"):
        for part in ("exec?command=id", "attach", "portforward?ports=8888", "log", "proxy/"):
            path = f"{SYSTEM}/pods/ballast-control-0/{part}"
            yield _try("T22", f"{actor} {part} of our pods", "GET", path, actor=actor)
    yield _try("T22", "an account of ours in a pod of the tenant's", "POST", PODS.format(HOME), pod(
        "thief", serviceAccountName="ballast-control"), word="not found")  # fmt: skip


def logins() -> Iterator[Attempt]:
    """T23."""
    for actor in (CONTROL, SCHEDULER, WEBHOOKS):
        for title, method, path, body in _beyond(actor):
            yield _try("T23", f"{actor} {title}", method, path, body, actor=actor)
    for actor in ("tenant", "tenant-token", "agent", CONTROL, SCHEDULER, WEBHOOKS):
        for user in ("kubernetes-admin", f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:x"):
            yield _try("T23", f"{actor} says to be {user}", "GET", "/api/v1/secrets",
                       actor=actor, as_user=user)  # fmt: skip
    for title, part, patch in _gifts():
        path = f"{VICTIM}/{part}" if part else VICTIM
        yield _try("T23", f"{CONTROL} gives a pod {title}", "PATCH", path, patch, actor=CONTROL)
    node = f"/api/v1/nodes/{NODES[0]}/status"
    for title, status in (
        ("no memory", {"allocatable": {"memory": "0"}}),
        ("many cards", {"capacity": {"nvidia.com/gpu": "64"}}),
        ("another condition", {"conditions": [{"type": "Ready", "status": "False"}]}),
    ):
        yield _try("T23", f"{CONTROL} gives a node {title}", "PATCH", node, {"status": status},
                   actor=CONTROL)  # fmt: skip


def _gifts() -> Iterator[tuple[str, str, Body]]:
    """Changes of a pod that the controller may not make: title, subresource, patch."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": NODES[0], "uid": "u"}
    for title, metadata in (
        ("another owner", Body(ownerReferences=[owner])),
        ("a finalizer", Body(finalizers=["example.com/for-ever"])),
        ("another label", Body(labels={"app": "other"})),
        ("another project", Body(labels={names.LABEL_PROJECT: HOME})),
        ("another's note", Body(annotations={"example.com/note": "x"})),
        ("another share", Body(annotations={"gpu-fraction": "0.9"})),
    ):
        yield title, "", {"metadata": metadata}
    image = Body(containers=[{"name": "main", "image": "evil"}])
    yield "another image", "", {"spec": image}
    yield "a deadline", "", {"spec": {"activeDeadlineSeconds": 1}}
    yield "a toleration", "", {"spec": {"tolerations": [{"operator": "Exists"}]}}
    yield "an end", "status", {"status": {"phase": "Failed"}}
    addresses = {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}
    yield "another address", "status", {"status": addresses}


def _beyond(actor: str) -> Iterator[tuple[str, str, str, Any]]:
    """Requests that none of our programs may make: title, method, path, body."""
    secrets_of = f"/api/v1/namespaces/{VICTIMS[0]}/secrets"
    yield "reads a team's secrets", "GET", secrets_of, None
    yield "reads all secrets", "GET", "/api/v1/secrets", None
    yield "makes a pod", "POST", PODS.format(VICTIMS[0]), half("mine")
    yield "makes a pod in its own namespace", "POST", f"{SYSTEM}/pods", pod("mine")
    yield "runs a command", "GET", f"{VICTIM}/exec?command=id", None
    yield "makes a token", "POST", f"{SYSTEM}/serviceaccounts/ballast-webhooks/token", {
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}  # fmt: skip
    for kind in ("clusterrolebindings", "clusterroles"):
        yield f"writes {kind}", "POST", f"{RBAC}/{kind}", {
            "metadata": {"name": "mine"}, "rules": [],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                        "name": "cluster-admin"}}  # fmt: skip
    yield "weakens the webhook", "PATCH", (
        f"{ADMISSION}/mutatingwebhookconfigurations/other"), {"webhooks": []}  # fmt: skip
    if actor != WEBHOOKS:
        # The webhooks' own account may update the CA in them: docs/threats.md.
        path = f"{ADMISSION}/mutatingwebhookconfigurations/ballast-webhooks"
        yield "weakens our webhook", "PATCH", path, {"webhooks": []}
    yield "takes a policy away", "DELETE", (
        f"{ADMISSION}/validatingadmissionpolicies/reserved.ballast.dev"), None  # fmt: skip
    yield "raises a quota", "PATCH", f"{OURS}/gpuprojects/mallory", {"spec": {"department": "x"}}
    yield "deletes a project", "DELETE", f"{OURS}/gpuprojects/team-a", None
    yield "labels a namespace", "PATCH", f"/api/v1/namespaces/{HOME}", {
        "metadata": {"labels": {"a": "b"}}}  # fmt: skip
    yield "changes a node", "PATCH", f"/api/v1/nodes/{NODES[0]}", {"spec": {"unschedulable": True}}
    yield "reaches a kubelet", "GET", f"/api/v1/nodes/{NODES[0]}/proxy/pods", None
    if actor != SCHEDULER:
        # In every cluster kube-scheduler may delete and bind pods.
        yield "deletes a pod", "DELETE", VICTIM, None
        target = {"kind": "Node", "name": NODES[0]}
        binding = {"metadata": {"name": "waiting"}, "target": target}
        yield "binds a pod", "POST", f"{PODS.format(VICTIMS[1])}/waiting/binding", binding
    if actor != CONTROL:
        yield "changes a pod", "PATCH", VICTIM, {"metadata": {"labels": {"a": "b"}}}
        about = {"metadata": {"name": "fraction"}}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", **about}
        yield "evicts a pod", "POST", f"{VICTIM}/eviction", eviction
    if actor == WEBHOOKS:
        yield "writes the ledger", "PATCH", f"{OURS}/gpunodes/{NODES[0]}", {"spec": {"rows": []}}
        yield "reads pods", "GET", "/api/v1/pods", None


def images() -> Iterator[Attempt]:
    """T24."""
    evil: Body = {"spec": {"template": {"spec": {"containers": [container("main")]}}}}
    apps = f"/apis/apps/v1/namespaces/{names.SYSTEM_NAMESPACE}"
    for actor in ("tenant", "tenant-token", WEBHOOKS, CONTROL, SCHEDULER):
        for kind, name in (
            ("deployments", "ballast-control"), ("deployments", "ballast-scheduler"),
            ("deployments", "ballast-webhooks"), ("daemonsets", "ballast-gpu-shim"),
        ):  # fmt: skip
            yield _try("T24", f"{actor} exchanges {kind}/{name}", "PATCH", f"{apps}/{kind}/{name}",
                       evil, actor=actor)  # fmt: skip
        yield _try("T24", f"{actor} changes the scheduler's configuration", "PATCH",
                   f"{SYSTEM}/configmaps/ballast-scheduler", {"data": {}}, actor=actor)  # fmt: skip


def nodes() -> Iterator[Attempt]:
    """T26."""
    rows: Body = {"spec": {"rows": []}}
    devices = {"status": {"devices": [{"index": n, "memoryMiB": 81920} for n in range(16)]}}
    for actor in ("node", "tenant", "tenant-token", "nobody", WEBHOOKS):
        for node in NODES[:2]:
            path = f"{OURS}/gpunodes/{node}"
            yield _try("T26", f"{actor} empties the ledger of {node}", "PATCH", path, rows,
                       actor=actor)  # fmt: skip
            yield _try("T26", f"{actor} gives {node} cards", "PATCH", f"{path}/status", devices,
                       actor=actor)  # fmt: skip
            yield _try("T26", f"{actor} deletes the ledger of {node}", "DELETE", path, actor=actor)
        made = {"apiVersion": "ballast.dev/v1alpha1", "kind": "GpuNode",
                "metadata": {"name": "made-up"}, "spec": {"rows": []}}  # fmt: skip
        yield _try("T26", f"{actor} makes a ledger up", "POST", f"{OURS}/gpunodes", made,
                   actor=actor)  # fmt: skip
    yield from _rogue_agent()
    yield from _rogue_kubelet()
    other = {"status": {"capacity": {"ballast.dev/gpu-milli": "64k"}}}
    for actor in ("tenant", WEBHOOKS, "node"):
        yield _try("T26", f"{actor} gives another node shares", "PATCH",
                   f"/api/v1/nodes/{NODES[1]}/status", other, actor=actor)  # fmt: skip


def _rogue_agent() -> Iterator[Attempt]:
    """Requests of a node's agent outside its node."""
    devices: Body = {"status": {"devices": []}}
    for node in NODES[1:]:
        path = f"{OURS}/gpunodes/{node}/status"
        yield _try("T26", f"the agent takes {node}'s cards away", "PATCH", path, devices,
                   actor="agent")  # fmt: skip
    for node in NODES[:2]:
        path = f"{OURS}/gpunodes/{node}"
        for title, patch in (("rows", {"spec": {"rows": []}}), ("labels", {"metadata": {
            "labels": {names.LABEL_NODE_POOL: "other"}}})):  # fmt: skip
            yield _try("T26", f"the agent changes {title} of {node}", "PATCH", path, patch,
                       actor="agent")  # fmt: skip
        yield _try("T26", f"the agent deletes {node}'s ledger", "DELETE", path, actor="agent")
        yield _try("T26", f"the agent gives {node} shares", "PATCH", f"/api/v1/nodes/{node}/status",
                   {"status": {"capacity": {names.GPU_MILLI: "64k"}}}, actor="agent")  # fmt: skip
    row = {"uid": "u", "namespace": HOME, "name": "x", "state": "bound",
           "cards": [{"index": 0, "milli": 1000, "memoryMiB": 1}]}  # fmt: skip
    for name, rows in (("made-up", []), (NODES[0], [row]), (NODES[1], [])):
        body = {"apiVersion": "ballast.dev/v1alpha1", "kind": "GpuNode",
                "metadata": {"name": name}, "spec": {"rows": rows}}  # fmt: skip
        yield _try("T26", f"the agent makes a ledger of {name}", "POST", f"{OURS}/gpunodes", body,
                   actor="agent", word=(*DENIED, "already exists"))  # fmt: skip
    holder = "/api/v1/namespaces/ballast-node/pods"
    for title, spec in (
        ("privileged", Body(containers=[container(securityContext={"privileged": True})])),
        ("on another node", Body(nodeName=NODES[1])),
        ("with /", Body(nodeName=NODES[0], volumes=[{"name": "v", "hostPath": {"path": "/"}}])),
        ("under an account", Body(nodeName=NODES[0], serviceAccountName="ballast-agent")),
    ):  # fmt: skip
        yield _try("T26", f"the agent makes a holder {title}", "POST", holder, pod(
            "ballast-holder-x", **spec), actor="agent")  # fmt: skip
    yield _try("T26", "the agent makes a team's pod", "POST", PODS.format(VICTIMS[0]), pod("mine"),
               actor="agent")  # fmt: skip
    yield _try("T26", "the agent deletes a pod that waits", "DELETE",
               f"{PODS.format(VICTIMS[1])}/waiting", actor="agent")  # fmt: skip
    for path in ("/api/v1/secrets", "/api/v1/nodes", "/api/v1/pods"):
        yield _try("T26", f"the agent reads {path}", "GET", path, actor="agent")


def _rogue_kubelet() -> Iterator[Attempt]:
    """Requests of a kubelet outside its node, which the API server's Node authorizer and
    NodeRestriction refuse."""
    other = f"/api/v1/nodes/{NODES[1]}"
    for title, method, path, body in (
        ("gives another node cards", "PATCH", f"{other}/status",
         {"status": {"allocatable": {"nvidia.com/gpu": "64"}}}),
        ("makes another node ill", "PATCH", f"{other}/status",
         {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
        ("moves another node into a pool", "PATCH", other,
         {"metadata": {"labels": {names.LABEL_NODE_POOL: "other"}}}),
        ("claims a label of administrators", "PATCH", f"/api/v1/nodes/{NODES[0]}",
         {"metadata": {"labels": {"node-restriction.kubernetes.io/pool": "a100"}}}),
        ("taints itself", "PATCH", f"/api/v1/nodes/{NODES[0]}",
         {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
        ("deletes another node", "DELETE", other, None),
        ("makes a node up", "POST", "/api/v1/nodes", {"metadata": {"name": "made-up"}}),
        ("reads a team's secret", "GET", f"/api/v1/namespaces/{VICTIMS[1]}/secrets/treasure", None),
        ("reads all secrets", "GET", "/api/v1/secrets", None),
        ("binds a pod to itself", "POST", f"{PODS.format(VICTIMS[1])}/waiting/binding",
         {"metadata": {"name": "waiting"}, "target": {"kind": "Node", "name": NODES[0]}}),
        ("ends a pod that waits", "PATCH", f"{PODS.format(VICTIMS[1])}/waiting/status",
         {"status": {"phase": "Failed"}}),
        ("deletes a pod that waits", "DELETE", f"{PODS.format(VICTIMS[1])}/waiting", None),
        ("evicts a pod that waits", "POST", f"{PODS.format(VICTIMS[1])}/waiting/eviction",
         {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "waiting"}}),
        ("takes a gate off", "PATCH", f"{PODS.format(VICTIMS[1])}/waiting",
         {"spec": {"schedulingGates": []}}),
    ):  # fmt: skip
        yield _try("T26", f"a kubelet {title}", method, path, body, actor="node")
    for account in (CONTROL, SCHEDULER, WEBHOOKS):
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        yield _try("T26", f"a kubelet wants a token of {account}", "POST",
                   f"{SYSTEM}/serviceaccounts/{account}/token", request, actor="node")  # fmt: skip
    mirror = {"kubernetes.io/config.mirror": "x"}
    for title, fields in (
        ("a pod", Body(nodeName=NODES[0])),
        ("a mirror pod of another node", Body(notes=mirror, nodeName=NODES[1])),
        ("a mirror pod with an account", Body(
            notes=mirror, nodeName=NODES[0], serviceAccountName="default")),
    ):  # fmt: skip
        yield _try("T26", f"a kubelet makes {title}", "POST", PODS.format(VICTIMS[0]), half(
            "mirror", **fields), actor="node", word=(*DENIED, "can only create"))  # fmt: skip
