"""Reads facts about a cluster. A kind that is not served is empty; failed reads are in `unread`."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct, field

from extender.api.claims import DeviceClass, ResourceSlice
from extender.api.kinds import GpuNode, GpuNodePool, GpuProject
from extender.api.names import API_VERSION
from extender.api.objects import Container, LabelSelector, ObjectMeta, PriorityClass, Taint
from extender.kube.client import Client
from extender.kube.errors import KubeError, NotFound
from extender.kube.resources import DRA_PATH

T = TypeVar("T")
PAGE: Final = 500
_FORBIDDEN: Final = 403
#: Part of the names of namespaces where a descheduler is looked for, beside kube-system.
DESCHEDULER: Final = "descheduler"
#: Rights that the installation needs: verb, API group, resource.
RIGHTS: Final = (
    ("create", "apiextensions.k8s.io", "customresourcedefinitions"),
    ("create", "rbac.authorization.k8s.io", "clusterroles"),
    ("create", "admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("create", "admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("create", "scheduling.k8s.io", "priorityclasses"),
    ("create", "", "namespaces"),
)


class NodeInfo(Struct, rename="camel"):
    container_runtime_version: str = ""


class NodeStatus(Struct, rename="camel"):
    capacity: dict[str, str] = field(default_factory=dict)
    node_info: NodeInfo = field(default_factory=NodeInfo)


class NodeSpec(Struct):
    taints: list[Taint] | None = None
    unschedulable: bool = False


class Node(Struct):
    metadata: ObjectMeta
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)

    @property
    def name(self) -> str:
        """`metadata.name`."""
        return self.metadata.name

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels; empty if there are none."""
        return self.metadata.labels or {}


class PodSpec(Struct, rename="camel"):
    containers: list[Container] = field(default_factory=list)
    init_containers: list[Container] | None = None
    restart_policy: str = ""


class PodTemplate(Struct):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PodSpec = field(default_factory=PodSpec)


class JobSpec(Struct, rename="camel"):
    template: PodTemplate = field(default_factory=PodTemplate)
    pod_failure_policy: dict[str, Any] | None = None


class JobStatus(Struct, rename="camel"):
    conditions: list[dict[str, Any]] | None = None


class Job(Struct):
    metadata: ObjectMeta
    spec: JobSpec = field(default_factory=JobSpec)
    status: JobStatus = field(default_factory=JobStatus)


class BudgetStatus(Struct, rename="camel"):
    disruptions_allowed: int = 0
    expected_pods: int = 0


class Budget(Struct):
    metadata: ObjectMeta
    status: BudgetStatus = field(default_factory=BudgetStatus)


#: GPU feature discovery's label of nodes with GPUs.
PRESENT: Final = "nvidia.com/gpu.present"


class Named(Struct):
    metadata: ObjectMeta


class WebhookRule(Struct, rename="camel"):
    api_groups: list[str] = field(default_factory=list)
    operations: list[str] = field(default_factory=list)
    resources: list[str] = field(default_factory=list)
    scope: str = "*"


class Webhook(Struct, rename="camel"):
    failure_policy: str = "Fail"
    match_conditions: list[dict[str, Any]] | None = None
    namespace_selector: LabelSelector = field(default_factory=LabelSelector)
    object_selector: LabelSelector = field(default_factory=LabelSelector)
    rules: list[WebhookRule] | None = None


class WebhookConfiguration(Struct):
    metadata: ObjectMeta
    webhooks: list[Webhook] | None = None


class ConfigMap(Struct):
    metadata: ObjectMeta
    data: dict[str, str] | None = None


class _Metadata(Struct):
    token: str = field(default="", name="continue")


class _Page(Struct):
    items: msgspec.Raw
    metadata: _Metadata = field(default_factory=_Metadata)


class _Version(Struct, rename="camel"):
    git_version: str = ""


class _GroupVersion(Struct, rename="camel"):
    group_version: str = ""


class _Group(Struct):
    name: str = ""
    versions: list[_GroupVersion] = field(default_factory=list)


class _Groups(Struct):
    groups: list[_Group]


class Facts(Struct):
    """A cluster as seen by one user."""

    version: str = ""
    #: Names of groups, and each with its versions: "apps", "apps/v1".
    groups: list[str] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    namespaces: list[Named] = field(default_factory=list)
    projects: list[GpuProject] = field(default_factory=list)
    node_pools: list[GpuNodePool] = field(default_factory=list)
    ledger: list[GpuNode] = field(default_factory=list)
    priority_classes: list[PriorityClass] = field(default_factory=list)
    device_classes: list[DeviceClass] = field(default_factory=list)
    slices: list[ResourceSlice] = field(default_factory=list)
    webhooks: list[WebhookConfiguration] = field(default_factory=list)
    policies: list[Named] = field(default_factory=list)
    #: Policies of deschedulers.
    descheduling: list[ConfigMap] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    budgets: list[Budget] = field(default_factory=list)
    #: Missing rights for the installation: "create clusterroles".
    lacking: list[str] = field(default_factory=list)
    #: Failed reads, with the reason.
    unread: list[str] = field(default_factory=list)

    def lacks(self, resource: str) -> bool:
        """Whether objects of this resource could not be read."""
        return any(each.startswith(f"{resource}: ") for each in self.unread)


def _is_descheduling(found: ConfigMap) -> bool:
    """Whether it has a policy of a descheduler."""
    return any("DeschedulerPolicy" in text for text in (found.data or {}).values())


class FactsReader:
    """Reads facts with one client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._unread: list[str] = []

    async def read(self, namespaces: Sequence[str] = ()) -> Facts:
        """The cluster's facts; Jobs and budgets only in `namespaces` and in those of projects."""
        version = msgspec.json.decode(await self._client.get_raw("/version"), type=_Version)
        projects = await self._list(f"/apis/{API_VERSION}/gpuprojects", GpuProject)
        wanted = {*namespaces, *(name for each in projects for name in each.spec.namespaces)}
        admission, dra = "/apis/admissionregistration.k8s.io/v1", DRA_PATH
        facts = Facts(
            version=version.git_version,
            groups=await self._groups(),
            nodes=await self._list("/api/v1/nodes", Node),
            namespaces=await self._list("/api/v1/namespaces", Named),
            projects=projects,
            node_pools=await self._list(f"/apis/{API_VERSION}/gpunodepools", GpuNodePool),
            ledger=await self._list(f"/apis/{API_VERSION}/gpunodes", GpuNode),
            priority_classes=await self._list(
                "/apis/scheduling.k8s.io/v1/priorityclasses", PriorityClass
            ),
            device_classes=await self._list(f"{dra}/deviceclasses", DeviceClass),
            slices=await self._list(f"{dra}/resourceslices", ResourceSlice),
            webhooks=[
                *await self._list(
                    f"{admission}/mutatingwebhookconfigurations", WebhookConfiguration
                ),
                *await self._list(
                    f"{admission}/validatingwebhookconfigurations", WebhookConfiguration
                ),
            ],
            policies=await self._list(f"{admission}/validatingadmissionpolicies", Named),
            lacking=await self._lacking(),
        )
        for each in facts.namespaces:
            if DESCHEDULER in each.metadata.name or each.metadata.name == "kube-system":
                path = f"/api/v1/namespaces/{each.metadata.name}/configmaps"
                facts.descheduling += filter(_is_descheduling, await self._list(path, ConfigMap))
        for name in sorted(wanted):
            facts.jobs += await self._list(f"/apis/batch/v1/namespaces/{name}/jobs", Job)
            path = f"/apis/policy/v1/namespaces/{name}/poddisruptionbudgets"
            facts.budgets += await self._list(path, Budget)
        facts.unread = self._unread
        return facts

    async def _list(self, path: str, kind: type[T]) -> list[T]:
        """Every object at `path`; empty if the kind is not served."""
        found: list[T] = []
        token = ""
        while True:
            query = {"limit": str(PAGE)} | ({"continue": token} if token else {})
            try:
                page = msgspec.json.decode(
                    await self._client.request("GET", path, query=query), type=_Page
                )
                found += msgspec.json.decode(page.items, type=list[kind])  # type: ignore[valid-type]
            except NotFound:
                return found
            except (KubeError, msgspec.MsgspecError) as error:
                is_forbidden = isinstance(error, KubeError) and error.status == _FORBIDDEN
                why = "forbidden" if is_forbidden else error
                self._unread.append(f"{path.rsplit('/', 1)[-1]}: {why}")
                return found
            token = page.metadata.token
            if not token:
                return found

    async def _groups(self) -> list[str]:
        groups = msgspec.json.decode(await self._client.get_raw("/apis"), type=_Groups)
        versions = (version.group_version for each in groups.groups for version in each.versions)
        return [*(each.name for each in groups.groups), *versions]

    async def _lacking(self) -> list[str]:
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        lacking = []
        for verb, group, resource in RIGHTS:
            asked = {"verb": verb, "group": group, "resource": resource}
            body = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": asked},
            }
            answer = msgspec.json.decode(await self._client.request("POST", path, body=body))
            if not answer["status"].get("allowed"):
                lacking.append(f"{verb} {resource}")
        return lacking
