"""T8: choosing cards by environment variables. T9: fields that a rule may omit. T13: host access.

They combine forbidden fields of a container with all places in which a pod can have one.
"""

import hashlib
from collections.abc import Iterator
from typing import Any, Final

from tests.attacks.attempt import (
    CARRIERS,
    HARDENED,
    HOME,
    NO_RIGHT,
    PODS,
    Attempt,
    Body,
    asking,
    carried,
    container,
    create,
    half,
    pod,
)
from tests.attacks.raw_client import STRATEGIC
from tests.attacks.stage import BOUND

VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
SHARED: Final = ("a fraction", "memory", "milli", "an instance")
#: Environment variables: carrier -> entries of `env`.
ENVIRONMENTS: Final[dict[str, list[Body]]] = {
    "all": [{"name": VISIBLE, "value": "all"}],
    "indices": [{"name": VISIBLE, "value": "0,1,2,3"}],
    "a UUID": [{"name": VISIBLE, "value": "GPU-8c1f0d66-2b2a-4f9c-9c53-1a2b3c4d5e6f"}],
    "twice": [{"name": VISIBLE, "value": "void"}, {"name": VISIBLE, "value": "all"}],
    "an annotation": [
        {"name": VISIBLE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['x']"}}}
    ],
    "a ConfigMap": [{"name": VISIBLE, "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}],
    "a Secret": [{"name": VISIBLE, "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
    "another variable": [{"name": "X", "value": "all"}, {"name": VISIBLE, "value": "$(X)"}],
}
FROM: Final[dict[str, list[Body]]] = {
    "all of a ConfigMap": [{"configMapRef": {"name": "c"}}],
    "all of a Secret": [{"secretRef": {"name": "s"}, "prefix": "NVIDIA_"}],
}
#: Forbidden for containers that share a card: title -> securityContext.
CONTEXTS: Final[dict[str, Body]] = {
    "privileged": {"privileged": True},
    "an unmasked /proc": {"procMount": "Unmasked"},
    **{
        f"the capability {name}": {"capabilities": {"add": [name]}}
        for name in ("SYS_ADMIN", "CAP_SYS_ADMIN", "sys_admin", "SYS_PTRACE", "SYS_RAWIO",
                     "SYS_MODULE", "Sys_Module", "ALL", "all", "DAC_READ_SEARCH", "BPF", "PERFMON")
    },
}  # fmt: skip
HOST_PATHS: Final = (
    "/", "/dev", "/dev/nvidia0", "/dev/nvidiactl", "/dev/null", "/proc", "/run/ballast",
    "/var/run/ballast", "/var/lib/kubelet", "/var/lib/kubelet/device-plugins",
    "/var/lib/kubelet/pod-resources",
    "/run/containerd/containerd.sock", "/var/run/nri/nri.sock", "/etc", "/etc/kubernetes", "/sys",
)  # fmt: skip
NOT_PRIVILEGED: Final = "may not be privileged"
NOT_HOST: Final = ("may not mount paths of the host", "host's processes")
BY_POD_SECURITY: Final = 'violates PodSecurity "baseline'


def _placed(carrier: str, **fields: Any) -> Iterator[tuple[str, Body]]:
    """The carrier's pod, with a container of these fields in each possible place."""
    asks = CARRIERS[carrier][1][0]
    bad = container("bad", **fields)
    yield "its container", carried(carrier, "bad", containers=[asks | fields])
    yield "a second container", carried(carrier, "bad", containers=[asks, bad])
    yield "an init container", carried(carrier, "bad", initContainers=[bad])
    side_car = bad | {"restartPolicy": "Always"}
    yield "a side-car", carried(carrier, "bad", initContainers=[side_car])


def environments() -> Iterator[Attempt]:
    """T8."""
    for title, entries in ENVIRONMENTS.items():
        for carrier in (*SHARED, "a whole card") if title == "all" else SHARED[:1]:
            for place, body in _placed(carrier, env=entries):
                yield create("T8", f"{carrier}, {title} in {place}", body, may_pass=True,
                             word=VISIBLE, gained=_sees_cards)  # fmt: skip
        yield _debugging("T8", f"{title} in an ephemeral container", {"env": entries},
                         may_pass=True, gained=_sees_cards)  # fmt: skip
    for title, sources in FROM.items():
        # The device plugin sets this variable too: docs/threats.md.
        for carrier in SHARED[:3]:
            for place, body in _placed(carrier, envFrom=sources):
                yield create("T8", f"{carrier}, {title} in {place}", body, may_pass=True,
                             word=VISIBLE, gained=_sees_cards)  # fmt: skip


def _sees_cards(stored: Body) -> str:
    """An error message if a container's environment selects cards; the last value counts."""
    spec = stored["spec"]
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for each in spec.get(kind, ()):
            said = [one for one in each.get("env", ()) if one["name"] == VISIBLE]
            if any(one.get("value") not in ("void", "none") for one in said):
                return f"{each['name']} says {said}"
            if "envFrom" in each and not said:
                return f"{each['name']} takes what it is shown from {each['envFrom']}"
    return ""


def fields() -> Iterator[Attempt]:
    """T9."""
    for title, context in CONTEXTS.items():
        for carrier in SHARED if title in ("privileged", "the capability all") else SHARED[2:3]:
            for place, body in _placed(carrier, securityContext=context):
                if title == "an unmasked /proc":
                    body["spec"]["hostUsers"] = False
                yield create("T9", f"{carrier}, {title} in {place}", body, word=NOT_PRIVILEGED)
        yield _debugging("T9", f"{title} in an ephemeral container", {"securityContext": context})
    for resource in ("ballast.dev/gpu-milli", "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"):
        limits = {"resources": {"limits": {resource: "1"}, "requests": {resource: "1"}}}
        yield _debugging("T9", f"{resource} of an ephemeral container", limits,
                         word=("must not be set", "Forbidden"))  # fmt: skip
        whole = half("bad", resources=limits["resources"])
        yield create("T9", f"{resource} of the pod as a whole", whole,
                     word=("not supported", "Unsupported", "strict decoding"))  # fmt: skip
        for kind in ("initContainers", "containers"):
            one = asking(resource, name="more")
            given = {"initContainers": [one]} if kind == "initContainers" else {
                "containers": [container(), one]}  # fmt: skip
            body = half("bad", **given)
            yield create("T9", f"{resource} in {kind} beside a fraction", body,
                         word=("use one of them", "differ", "disagree", "gpu-milli"))  # fmt: skip
        resize = {"spec": {"containers": [{"name": "main", "resources": limits["resources"]}]}}
        yield Attempt(threat="T9", title=f"{resource} by a resize", method="PATCH",
                      path=f"{PODS.format(HOME)}/{BOUND}/resize", body=resize, media=STRATEGIC,
                      word=("Forbidden", "only cpu and memory", "cannot"))  # fmt: skip


def _debugging(threat: str, title: str, given: Body, **fields: Any) -> Attempt:
    """An ephemeral container in the running pod; the tenant has the right to add one."""
    name = "debug-" + hashlib.sha256(title.encode()).hexdigest()[:8]
    extra = container(name, **given)
    body = {"spec": {"ephemeralContainers": [extra]}}
    words = {"word": VISIBLE if "env" in given else (NOT_PRIVILEGED, "`hostUsers` must be false")}
    return Attempt(threat=threat, title=title, method="PATCH", media=STRATEGIC, body=body,
                   path=f"{PODS.format(HOME)}/{BOUND}/ephemeralcontainers",
                   **(words | fields))  # fmt: skip


def hosts() -> Iterator[Attempt]:
    """T13."""
    for path in HOST_PATHS:
        volumes = [{"name": "v", "hostPath": {"path": path}}]
        mounted = container(volumeMounts=[{"name": "v", "mountPath": "/v", "readOnly": True}])
        yield create("T13", f"half a card and {path}", half(
            "host", volumes=volumes, containers=[mounted]), word=NOT_HOST)  # fmt: skip
        yield create("T13", f"no card and {path}, under Pod Security", pod(
            "host", volumes=volumes, containers=[mounted]), HARDENED,
            word=BY_POD_SECURITY)  # fmt: skip
    for carrier in CARRIERS:
        volumes = [{"name": "v", "hostPath": {"path": "/dev"}}]
        namespace = HARDENED if carrier == "a whole card" else HOME
        word = BY_POD_SECURITY if carrier == "a whole card" else NOT_HOST
        body = carried(carrier, "host", volumes=volumes)
        yield create("T13", f"{carrier} and /dev", body, namespace, word=word)
        for field in ("hostPID", "hostIPC"):
            body = carried(carrier, "host", **{field: True})
            yield create("T13", f"{carrier} and {field}", body, namespace, word=word)
    for field in ("hostPID", "hostIPC", "hostNetwork"):
        yield create("T13", f"no card and {field}, under Pod Security", pod(
            "host", **dict[str, Any]({field: True})), HARDENED,
            word=BY_POD_SECURITY)  # fmt: skip
    for source in ({"hostPath": {"path": "/"}}, {"local": {"path": "/dev"}}):
        spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], **source}
        body = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "host"}}
        yield Attempt(threat="T13", title=f"a volume of {source}", body=body | {"spec": spec},
                      path="/api/v1/persistentvolumes", word=NO_RIGHT)  # fmt: skip
    for kind, path in (
        ("RuntimeClass", "/apis/node.k8s.io/v1/runtimeclasses"),
        ("DeviceClass", "/apis/resource.k8s.io/v1/deviceclasses"),
        ("StorageClass", "/apis/storage.k8s.io/v1/storageclasses"),
    ):
        body = {"metadata": {"name": "mine"}}
        yield Attempt(threat="T13", title=f"a {kind} of its own", path=path, body=body,
                      word=NO_RIGHT)  # fmt: skip
