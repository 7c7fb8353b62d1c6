"""The ProvisioningRequest and PodTemplates that ask a cluster autoscaler for a workload's nodes.

The templates request what the workload's pods request of a node, in resources that every scheduler
knows. `ballast.dev/gpu-milli` is left out: a node group without nodes does not have it.
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

#: The autoscaler's conditions of a request, the latest first.
RequestState = Literal["BookingExpired", "CapacityRevoked", "Failed", "Provisioned", "Accepted"]
_STATES: Final[tuple[RequestState, ...]] = (
    "BookingExpired", "CapacityRevoked", "Failed", "Provisioned", "Accepted",
)  # fmt: skip
#: Characters of the workload's name in a request's name, and bytes of the digest after it.
_LONGEST_NAME: Final = 40
_DIGEST_BYTES: Final = 5


class Wanted(Struct, frozen=True):
    """The content of a workload's request. `shapes` are pod specs with the number of pods of each;
    `requested` is a digest of them."""

    namespace: str
    name: str
    workload: str
    provisioning_class: str
    shapes: tuple[tuple[Body, int], ...]
    requested: str

    def documents(self) -> tuple[Body, list[Body]]:
        """The ProvisioningRequest, and the PodTemplates that it names. Their names contain the
        digest, so an existing template of a name has the same content."""
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
    """The request of a workload. Its name depends only on the workload, so there is at most one."""
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
    """The latest condition that the autoscaler set on the request."""
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
        # Nothing runs from it: the autoscaler only compares its requests with nodes.
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
