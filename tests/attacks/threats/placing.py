"""T6: opting out. T7: choosing one's own node, scheduler or start time."""

from collections.abc import Iterator
from typing import Any, Final

from extender.api import names
from tests.attacks.attempt import (
    CARRIERS,
    HARDENED,
    HOME,
    NO_RIGHT,
    NODES,
    PODS,
    VICTIMS,
    Attempt,
    Body,
    carried,
    create,
    half,
    pod,
)
from tests.attacks.raw_client import APPLY, JSON_PATCH, MERGE, STRATEGIC
from tests.attacks.stage import ADMISSION, BOUND, HELD

OPT_OUTS: Final = (
    "hami.io/webhook", "kai.scheduler/skip", "ballast.dev/skip", "ballast.dev/webhook",
    "ballast.dev/managed", "admission.ballast.dev/ignore", "control-plane", "k8s-app",
    "app.kubernetes.io/managed-by", "pod-security.kubernetes.io/enforce",
)  # fmt: skip


def opt_outs() -> Iterator[Attempt]:
    """T6."""
    for key in OPT_OUTS:
        for field in ("labels", "notes"):
            given: dict[str, Any] = {field: {key: "ignore"}}
            yield create("T6", f"{field} {key}=ignore", half("out", **given), may_pass=True,
                         word="", gained=_is_free)  # fmt: skip
    yield create("T6", "a mirror pod of its own", half(
        "out", notes={"kubernetes.io/config.mirror": "x"}), word=("mirror", "gate"))  # fmt: skip
    yield create("T6", "a mirror pod with a node", half(
        "out", notes={"kubernetes.io/config.mirror": "x"}, nodeName=NODES[0]),
        word="nodeName is preset")  # fmt: skip
    for carrier in CARRIERS:
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u",
                 "controller": True}  # fmt: skip
        body = carried(carrier, "out", meta={"ownerReferences": [owner]})
        yield create("T6", f"{carrier} of a DaemonSet that isn't", body, may_pass=True,
                     word="came without the gate", gained=_is_free)  # fmt: skip
    yield from _opt_outs_by_others()


def _is_free(stored: Body) -> str:
    gates = [gate["name"] for gate in stored["spec"].get("schedulingGates", ())]
    return "" if names.GATE in gates else "is not held by the gate"


def _opt_outs_by_others() -> Iterator[Attempt]:
    for namespace in (HOME, HARDENED):
        for labels in (
            {"hami.io/webhook": "ignore"},
            {"kubernetes.io/metadata.name": "kube-system"},
            {"pod-security.kubernetes.io/enforce": None},
        ):
            yield Attempt(threat="T6", title=f"{labels} on namespace {namespace}", method="PATCH",
                          path=f"/api/v1/namespaces/{namespace}", media=MERGE,
                          body={"metadata": {"labels": labels}}, word=NO_RIGHT)  # fmt: skip
    for namespace in ("kube-system", "ballast-system", "mine"):
        body = {"metadata": {"name": namespace}}
        yield Attempt(threat="T6", title=f"namespace {namespace}", path="/api/v1/namespaces",
                      body=body, word=NO_RIGHT)  # fmt: skip
        yield create("T6", f"a pod in {namespace}", half("out"), namespace, word=NO_RIGHT)
    for kind, name in (
        ("mutatingwebhookconfigurations", "ballast-webhooks"),
        ("validatingadmissionpolicies", "reserved.ballast.dev"),
        ("validatingadmissionpolicybindings", "reserved.ballast.dev"),
        ("validatingadmissionpolicybindings", "gpu-pods.ballast.dev"),
    ):
        path = f"{ADMISSION}/{kind}/{name}"
        yield Attempt(threat="T6", title=f"without {kind}/{name}", method="DELETE", path=path,
                      word=NO_RIGHT)  # fmt: skip
        patch = {"spec": {"validationActions": ["Warn"]}, "webhooks": []}
        yield Attempt(threat="T6", title=f"a weaker {kind}/{name}", method="PATCH", path=path,
                      body=patch, media=MERGE, word=NO_RIGHT)  # fmt: skip
    template = half("d")
    template["metadata"]["labels"] = {"app": "d"}
    template["spec"].pop("terminationGracePeriodSeconds")
    del template["apiVersion"], template["kind"], template["metadata"]["name"]
    template["metadata"]["annotations"] = {"gpu-fraction": "0.9"}
    daemons = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "daemons"}}
    daemons["spec"] = {"selector": {"matchLabels": {"app": "d"}}, "template": template}
    yield Attempt(threat="T6", title="a DaemonSet on every node, beyond the limit", body=daemons,
                  path=f"/apis/apps/v1/namespaces/{HOME}/daemonsets", may_pass=True)  # fmt: skip


def placements() -> Iterator[Attempt]:
    """T7."""
    preset, another = "nodeName is preset", ("set it to ballast-scheduler", "ballast-scheduler")
    for carrier in CARRIERS:
        for node in (NODES[0], "no-such-node"):
            body = carried(carrier, "placed", nodeName=node)
            yield create("T7", f"{carrier} on {node}", body, word=preset)
        body = carried(carrier, "placed", nodeName=NODES[0], schedulerName="mine")
        yield create("T7", f"{carrier} on a node by its own scheduler", body, word=preset)
        gates = [{"name": "example.com/mine"}]
        body = carried(carrier, "placed", schedulingGates=gates)
        yield create("T7", f"{carrier} with another gate only", body, may_pass=True,
                     gained=_is_free)  # fmt: skip
        for scheduler in ("default-scheduler", "mine", "Ballast-scheduler"):
            body = carried(carrier, "placed", schedulerName=scheduler)
            yield create("T7", f"{carrier} of {scheduler}", body, may_pass=True, word=another,
                         gained=is_elsewhere)  # fmt: skip
        body = carried(carrier, "placed", initContainers=body["spec"]["containers"],
                       containers=[{"name": "c", "image": "i"}], nodeName=NODES[0])  # fmt: skip
        yield create("T7", f"{carrier} of an init container on a node", body, word=preset)
    yield create("T7", "our gate on a pod without GPUs", pod(
        "placed", schedulingGates=[{"name": names.GATE}]), may_pass=True, gained=_is_free,
        word="remove the scheduling gate")  # fmt: skip
    yield from _releases()


def is_elsewhere(stored: Body) -> str:
    """An error message unless the pod is gated and has our scheduler."""
    scheduler = stored["spec"]["schedulerName"]
    return _is_free(stored) or ("" if scheduler == names.SCHEDULER_NAME else f"is of {scheduler}")


def _releases() -> Iterator[Attempt]:
    forms: tuple[tuple[str, Any, str], ...] = (
        ("merge patch", {"spec": {"schedulingGates": []}}, MERGE),
        ("merge patch of null", {"spec": {"schedulingGates": None}}, MERGE),
        ("strategic patch",
         {"spec": {"schedulingGates": [{"$patch": "delete", "name": names.GATE}]}}, STRATEGIC),
        ("JSON patch", [{"op": "remove", "path": "/spec/schedulingGates"}], JSON_PATCH),
        ("JSON patch of one", [{"op": "remove", "path": "/spec/schedulingGates/0"}], JSON_PATCH),
        ("exchange", {"spec": {"schedulingGates": [{"name": "example.com/mine"}]}}, MERGE),
        ("apply", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": HELD},
                   "spec": {"schedulingGates": [{"name": "example.com/mine"}]}}, APPLY),
    )  # fmt: skip
    for title, body, media in forms:
        query = "?fieldManager=mine&force=true" if media == APPLY else ""
        yield Attempt(threat="T7", title=f"release by {title}", method="PATCH",
                      path=f"{PODS.format(HOME)}/{HELD}{query}", body=body, media=media,
                      word=("only Ballast removes it", "only deletion is allowed"))  # fmt: skip
    for name in (HELD, BOUND):
        for key, value in (("nodeName", "no-such-node"), ("schedulerName", "default-scheduler")):
            yield Attempt(threat="T7", title=f"{key} of the {name} pod", method="PATCH",
                          path=f"{PODS.format(HOME)}/{name}", body={"spec": {key: value}},
                          media=MERGE, word="may not change fields")  # fmt: skip
        nominated = {"status": {"nominatedNodeName": NODES[0]}}
        yield Attempt(threat="T7", title=f"a nomination of the {name} pod", method="PATCH",
                      path=f"{PODS.format(HOME)}/{name}/status", body=nominated, media=MERGE,
                      word=NO_RIGHT)  # fmt: skip
    for victim, name in ((VICTIMS[1], "waiting"), (VICTIMS[0], "fraction")):
        path = f"{PODS.format(victim)}/{name}"
        patch: Body = {"spec": {"schedulingGates": []}}
        yield Attempt(threat="T7", title=f"release of {victim}/{name}", method="PATCH", path=path,
                      body=patch, media=MERGE, word=NO_RIGHT)  # fmt: skip
        yield Attempt(threat="T7", title=f"end of {victim}/{name}", method="DELETE", path=path,
                      word=NO_RIGHT)  # fmt: skip
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        yield Attempt(threat="T7", title=f"eviction of {victim}/{name}", path=f"{path}/eviction",
                      body=eviction, word=NO_RIGHT)  # fmt: skip
