"""Each kind in the API: its path, its plural, and the Struct that it decodes into."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from extender.api import names
from extender.api.claims import DeviceClass, ResourceClaim, ResourceSlice
from extender.api.jobs import Job
from extender.api.kinds import (
    GpuDepartment,
    GpuNode,
    GpuNodePool,
    GpuPodGroup,
    GpuProject,
    GpuTopology,
    GpuUsage,
)
from extender.api.objects import (
    Lease,
    Namespace,
    Node,
    ObjectMeta,
    Pod,
    PodDisruptionBudget,
    PodTemplate,
    PriorityClass,
    ProvisioningRequest,
    Secret,
)
from extender.api.volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from extender.kube.errors import RequestRefused


class KubeObject(Protocol):
    """An object with metadata: a projection of `extender.api.objects` or one of our kinds."""

    metadata: ObjectMeta


T = TypeVar("T", bound=KubeObject)

#: A valid path segment; the API server allows more, but our names do not need it.
_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,252}", re.ASCII)


def segment(text: str) -> str:
    """The text as a path segment; raises RequestRefused if it is no name."""
    if not _SEGMENT.fullmatch(text):
        raise RequestRefused(f"{text[:80]!r} is not a name: letters, digits, '.', '_', ':', '-'")
    return text


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """One kind of object. `path` is "/api/v1" or "/apis/<group>/<version>"."""

    kind: type[T]
    path: str
    plural: str
    is_namespaced: bool = True

    @property
    def api_version(self) -> str:
        """As in objects: "v1", "ballast.dev/v1alpha1"."""
        return self.path.removeprefix("/apis/").removeprefix("/api/")

    def url(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of one object, or of all (in one namespace) if `name` is empty."""
        if self.is_namespaced and name and not namespace:
            raise RequestRefused(f"{self.plural}/{name}: a namespace is needed")
        parts = [self.path]
        if self.is_namespaced and namespace:
            parts += ["namespaces", segment(namespace)]
        parts.append(self.plural)
        parts += [segment(part) for part in (name, subresource) if part]
        return "/".join(parts)

    def document(self, body: object) -> object:
        """`body` as JSON values, with the apiVersion and kind that the API server requires."""
        if isinstance(body, msgspec.Struct):
            body = msgspec.to_builtins(body)
        if isinstance(body, Mapping):
            typed: dict[str, Any] = {"apiVersion": self.api_version, "kind": self.kind.__name__}
            return typed | dict(body)
        return body


_CORE = "/api/v1"

PODS = Resource(Pod, _CORE, "pods")
NODES = Resource(Node, _CORE, "nodes", is_namespaced=False)
NAMESPACES = Resource(Namespace, _CORE, "namespaces", is_namespaced=False)
LEASES = Resource(Lease, "/apis/coordination.k8s.io/v1", "leases")
DISRUPTION_BUDGETS = Resource(PodDisruptionBudget, "/apis/policy/v1", "poddisruptionbudgets")
PRIORITY_CLASSES = Resource(
    PriorityClass, "/apis/scheduling.k8s.io/v1", "priorityclasses", is_namespaced=False
)
SECRETS = Resource(Secret, _CORE, "secrets")
CLAIMS = Resource(PersistentVolumeClaim, _CORE, "persistentvolumeclaims")
VOLUMES = Resource(PersistentVolume, _CORE, "persistentvolumes", is_namespaced=False)
STORAGE_CLASSES = Resource(
    StorageClass, "/apis/storage.k8s.io/v1", "storageclasses", is_namespaced=False
)
#: Dynamic resource allocation: from Kubernetes 1.34 on.
DRA_PATH: Final = "/apis/resource.k8s.io/v1"
DEVICE_CLASSES = Resource(DeviceClass, DRA_PATH, "deviceclasses", is_namespaced=False)
RESOURCE_SLICES = Resource(ResourceSlice, DRA_PATH, "resourceslices", is_namespaced=False)
RESOURCE_CLAIMS = Resource(ResourceClaim, DRA_PATH, "resourceclaims")
PROVISIONING_REQUESTS = Resource(
    ProvisioningRequest, "/apis/autoscaling.x-k8s.io/v1", "provisioningrequests"
)
JOBS = Resource(Job, "/apis/batch/v1", "jobs")
POD_TEMPLATES = Resource(PodTemplate, _CORE, "podtemplates")
DEPARTMENTS = Resource(GpuDepartment, names.API_PATH, "gpudepartments", is_namespaced=False)
PROJECTS = Resource(GpuProject, names.API_PATH, "gpuprojects", is_namespaced=False)
NODE_POOLS = Resource(GpuNodePool, names.API_PATH, "gpunodepools", is_namespaced=False)
POD_GROUPS = Resource(GpuPodGroup, names.API_PATH, "gpupodgroups")
GPU_NODES = Resource(GpuNode, names.API_PATH, "gpunodes", is_namespaced=False)
TOPOLOGIES = Resource(GpuTopology, names.API_PATH, "gputopologies", is_namespaced=False)
USAGES = Resource(GpuUsage, names.API_PATH, "gpuusages", is_namespaced=False)

#: The kinds of the cluster model, in the order in which they are listed.
MODEL: Final[tuple[Resource[Any], ...]] = (
    NODES,
    GPU_NODES,
    DEPARTMENTS,
    PROJECTS,
    NODE_POOLS,
    TOPOLOGIES,
    POD_GROUPS,
    DISRUPTION_BUDGETS,
    PODS,
)
#: Further kinds of the model, if they are served.
DEVICES: Final[tuple[Resource[Any], ...]] = (DEVICE_CLASSES, RESOURCE_SLICES, RESOURCE_CLAIMS)
