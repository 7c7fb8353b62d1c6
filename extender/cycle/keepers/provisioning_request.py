"""What a cluster autoscaler is asked for a workload: a ProvisioningRequest and its PodTemplates.

The templates say what the workload's pods ask for of a node, in the words of every scheduler:
`ballast.dev/gpu-milli`, which no node group knows before it has a node, is left out.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from extender.api import names
from extender.api.objects import ProvisioningRequest
from extender.policy.scale_up import ScaleUp
from extender.state.model import ElasticView, PodView

Body = dict[str, Any]

#: What an autoscaler says of a request, the last word first.
RequestState = Literal["BookingExpired", "CapacityRevoked", "Failed", "Provisioned", "Accepted"]
_STATES: Final[tuple[RequestState, ...]] = (
    "BookingExpired", "CapacityRevoked", "Failed", "Provisioned", "Accepted",
)  # fmt: skip
#: Of names, and the digest after them.
_LONGEST_NAME: Final = 40
_DIGEST_BYTES: Final = 5


class Wanted(Struct, frozen=True):
    """What a workload's request must say. `shapes` are pod specs and how many pods have each;
    `requested` changes with them."""

    namespace: str
    name: str
    workload: str
    provisioning_class: str
    shapes: tuple[tuple[Body, int], ...]
    requested: str

    def documents(self) -> tuple[Body, list[Body]]:
        """The ProvisioningRequest, and the PodTemplates that it names. A template that is there
        already under its name says the same."""
        template_names = [f"{self.name}-{self.requested}-{i}" for i in range(len(self.shapes))]
        request = {
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "labels": {names.LABEL_MANAGED_BY: names.CONTROLLER_NAME},
                "annotations": {
                    names.ANNOTATION_WORKLOAD: self.workload,
                    names.ANNOTATION_REQUESTED: self.requested,
                },
            },
            "spec": {
                "provisioningClassName": self.provisioning_class,
                "podSets": [
                    {"podTemplateRef": {"name": name}, "count": count}
                    for name, (_, count) in zip(template_names, self.shapes, strict=True)
                ],
            },
        }
        templates: list[Body] = [
            {"metadata": {"name": name}, "template": {"spec": spec}}
            for name, (spec, _) in zip(template_names, self.shapes, strict=True)
        ]
        return request, templates


def wanted(scale_up: ScaleUp, pool: ElasticView) -> Wanted:
    """The request for a workload. Its name follows from the workload's, so it has one at most."""
    workload = scale_up.workload
    shapes: dict[str, tuple[Body, int]] = {}
    for pod in scale_up.pods:
        spec = _pod_spec(pod, pool)
        key = json.dumps(spec, sort_keys=True)
        shapes[key] = spec, shapes.get(key, (spec, 0))[1] + 1
    listed = tuple(shapes[key] for key in sorted(shapes))
    return Wanted(
        namespace=workload.namespace,
        name=f"{workload.name[:_LONGEST_NAME].rstrip('-.')}-{_digest(workload.key)}",
        workload=workload.name,
        provisioning_class=pool.provisioning_class,
        shapes=listed,
        requested=_digest(json.dumps([listed, pool.provisioning_class], sort_keys=True)),
    )


def state_of(request: ProvisioningRequest) -> RequestState | Literal["Pending"]:
    """What the autoscaler says last of the request."""
    conditions = {each.type for each in request.status.conditions or () if each.status == "True"}
    return next((state for state in _STATES if state in conditions), "Pending")


def _pod_spec(pod: PodView, pool: ElasticView) -> Body:
    demand, constraints = pod.demand, pod.constraints
    asked: Mapping[str, str] = {
        names.NVIDIA_GPU: str(demand.devices) if demand.devices else "",
        "cpu": f"{demand.cpu_milli}m" if demand.cpu_milli else "",
        "memory": f"{demand.memory_mib}Mi" if demand.memory_mib else "",
    }
    resources: Body = {"requests": {key: text for key, text in asked.items() if text}}
    if demand.devices:
        resources["limits"] = {names.NVIDIA_GPU: str(demand.devices)}
    spec: Body = {
        # Nothing runs from it: the autoscaler compares what it asks for with nodes.
        "containers": [{"name": "asks", "image": "none", "resources": resources}],
        "nodeSelector": dict(constraints.node_selector) | dict(pool.selector),
        "tolerations": [_toleration(each) for each in constraints.tolerations],
    }
    if constraints.affinity is not None:
        required = msgspec.to_builtins(constraints.affinity)
        node = {"requiredDuringSchedulingIgnoredDuringExecution": required}
        spec["affinity"] = {"nodeAffinity": node}
    return spec


def _toleration(given: Any) -> Body:
    return {key: text for key, text in msgspec.to_builtins(given).items() if text}


def _digest(text: str) -> str:
    return hashlib.blake2s(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()
