"""K10: GPUs under less common names, in every place where a pod can request them."""

from collections.abc import Iterator
from typing import Any, Final

from extender.api import names
from tests.attacks.attempt import HOME, NODES, PODS, Attempt, Body, asking, container, create, pod
from tests.attacks.raw_client import MERGE, STRATEGIC
from tests.attacks.stage import BOUND, PLAIN

#: Extended resources by which drivers, device plugins and DRA provide GPUs.
RESOURCES: Final = (
    "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-1g.5gb.shared",
    "nvidia.com/mig-1g.10gb.me", "nvidia.com/mig-1g.24gb.gfx", "nvidia.com/mig-1g.24gb.me.all",
    "nvidia.com/mig-1c.3g.20gb", "nvidia.com/mig-7g.80gb", "nvidia.com/mig-7g.141gb.shared",
    "nvidia.com/pgpu", "nvidia.com/vgpu", "nvidia.com/GA102GL_A10", "nvidia.com/whatever",
    "deviceclass.resource.kubernetes.io/gpu.nvidia.com",
    "deviceclass.resource.kubernetes.io/mig.nvidia.com",
    "deviceclass.resource.kubernetes.io/anything",
    "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe",
)  # fmt: skip
SCHEDULERS: Final = ("", "default-scheduler", names.SCHEDULER_NAME)


def other_names() -> Iterator[Attempt]:
    """K10."""
    for resource in RESOURCES:
        one = asking(resource, name="more")
        side_car = one | {"restartPolicy": "Always"}
        for place, spec in (
            ("a container", {"containers": [asking(resource)]}),
            ("a second container", {"containers": [container(), one]}),
            ("an init container", {"initContainers": [one]}),
            ("a side-car", {"initContainers": [side_car]}),
        ):
            yield _asks(f"{resource} of {place}", pod("vendor", **dict[str, Any](spec)))
        for scheduler in SCHEDULERS[1:]:
            body = pod("vendor", containers=[asking(resource)], schedulerName=scheduler)
            yield _asks(f"{resource} of {scheduler}", body)
        body = pod("vendor", containers=[asking(resource)], nodeName=NODES[0])
        yield _asks(f"{resource} on a node", body)
        body = pod("vendor", containers=[asking(resource)], schedulingGates=[{"name": names.GATE}])
        yield _asks(f"{resource} behind our gate", body)
        limits = {"limits": {resource: "1"}, "requests": {resource: "1"}}
        yield _asks(f"{resource} of the pod as a whole", pod("vendor", resources=limits))
        extra = container("debug", resources=limits)
        yield Attempt(
            threat="K10", title=f"{resource} of an ephemeral container", method="PATCH",
            path=f"{PODS.format(HOME)}/{BOUND}/ephemeralcontainers", media=STRATEGIC,
            body={"spec": {"ephemeralContainers": [extra]}},
            word=("must not be set", "Forbidden", "ephemeral"),
        )  # fmt: skip
    yield from _claims()


def _asks(title: str, body: Body) -> Attempt:
    words = ("nvidia.com", "GPU", "gpu", "not supported", "Unsupported", "must")
    return create("K10", title, body, may_pass=True, gained=_is_unmanaged, word=words)


def _is_unmanaged(stored: Body) -> str:
    """The GPUs that an ungated pod requests; a gated pod is judged by the controller."""
    spec = stored["spec"]
    gates = [gate["name"] for gate in spec.get("schedulingGates", ())]
    if names.GATE in gates and spec.get("schedulerName") == names.SCHEDULER_NAME:
        return ""
    listed = [*spec["containers"], *spec.get("initContainers", ())]
    asked = {
        name
        for each in (*listed, spec)
        for name in (each.get("resources") or {}).get("limits") or ()
        if "." in name.split("/")[0]
    }
    if spec.get("resourceClaims"):
        asked.add("a resource claim")
    return f"asks for {sorted(asked)} outside the ledger" if asked else ""


def _claims() -> Iterator[Attempt]:
    """Devices by claim: the tenant's role may create claims and templates."""
    request = {"exactly": {"deviceClassName": "gpu.nvidia.com", "count": 8}}
    devices = {"devices": {"requests": [{"name": "gpu"} | request]}}
    base = f"/apis/resource.k8s.io/v1/namespaces/{HOME}"
    for plural, kind, spec in (
        ("resourceclaims", "ResourceClaim", devices),
        ("resourceclaimtemplates", "ResourceClaimTemplate", {"spec": devices}),
    ):
        body = {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": "gpus"}}
        yield Attempt(threat="K10", title=f"a {kind} of eight GPUs", path=f"{base}/{plural}",
                      body=body | {"spec": spec}, may_pass=True, word="")  # fmt: skip
    for source in ({"resourceClaimName": "gpus"}, {"resourceClaimTemplateName": "gpus"}):
        claims: list[Body] = [{"name": "gpu", **source}]
        for place, listed in (
            ("a container", {"containers": [container(resources={"claims": [{"name": "gpu"}]})]}),
            ("no container", {}),
        ):
            for scheduler in SCHEDULERS:
                given: Body = {"resourceClaims": claims, **dict[str, Any](listed)}
                if scheduler:
                    given["schedulerName"] = scheduler
                title = f"{next(iter(source))} in {place} of {scheduler or 'no scheduler named'}"
                yield _asks(title, pod("claims", **given))
    for status in ({"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "gpus"}]},):
        yield Attempt(threat="K10", title="a claim in the status of a pod", method="PATCH",
                      path=f"{PODS.format(HOME)}/{PLAIN}/status", body={"status": status},
                      media=MERGE, word="cannot")  # fmt: skip
