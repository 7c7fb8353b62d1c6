"""Fields of Kueue's kinds on the manager cluster."""

from typing import Final, Literal

from msgspec import Raw, Struct, field

from extender.api.objects import Condition, ObjectMeta
from extender.kube.resources import Resource

#: The progress of a Workload: it waits for a cluster, one has admitted it, or it is finished or
#: deleted.
Progress = Literal["waits", "admitted", "gone"]
KUEUE: Final = "kueue.x-k8s.io/v1beta2"
#: The controller that AdmissionChecks of MultiKueue name.
MULTIKUEUE: Final = "kueue.x-k8s.io/multikueue"
#: The key of a Secret under which Kueue keeps a kubeconfig.
KUBECONFIG_KEY: Final = "kubeconfig"


class CheckState(Struct, rename="camel"):
    """The state of an admission check of a Workload: Pending, Ready, Retry or Rejected."""

    name: str
    state: str = ""


class WorkloadStatus(Struct, rename="camel"):
    """The progress of a Workload in Kueue."""

    conditions: list[Condition] = field(default_factory=list)
    admission_checks: list[CheckState] = field(default_factory=list)
    nominated_cluster_names: list[str] = field(default_factory=list)
    cluster_name: str | None = None

    def has(self, condition: str) -> bool:
        """Whether the condition is True."""
        return any(each.type == condition and each.status == "True" for each in self.conditions)


class WorkloadPriority(Struct):
    """The field of a Workload's spec by which Workloads are ordered."""

    priority: int | None = None


class Workload(Struct, kw_only=True):
    """The projection of a Workload of the manager cluster."""

    metadata: ObjectMeta
    spec: WorkloadPriority = field(default_factory=WorkloadPriority)
    status: WorkloadStatus = field(default_factory=WorkloadStatus)

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return self.metadata.key


class KueuePodSet(Struct, rename="camel"):
    """Pods of one template, which is kept as written."""

    template: Raw
    count: int = 1


class PodSets(Struct, rename="camel"):
    """The request of a Workload."""

    pod_sets: list[KueuePodSet] = field(default_factory=list)


class Asked(Struct):
    """A Workload with its pod templates; read for a question, and not kept."""

    metadata: ObjectMeta
    spec: PodSets = field(default_factory=PodSets)


class CheckParameters(Struct, rename="camel"):
    """The object that configures an AdmissionCheck."""

    kind: str = ""
    name: str = ""


class CheckSpec(Struct, rename="camel"):
    """The controller of an AdmissionCheck."""

    controller_name: str = ""
    parameters: CheckParameters | None = None


class AdmissionCheck(Struct):
    """A check that a ClusterQueue requires before a Workload is admitted."""

    metadata: ObjectMeta
    spec: CheckSpec = field(default_factory=CheckSpec)


class ConfigSpec(Struct):
    """Names of MultiKueueClusters, the preferred first."""

    clusters: list[str] = field(default_factory=list)


class MultiKueueConfig(Struct):
    """The worker clusters of an AdmissionCheck."""

    metadata: ObjectMeta
    spec: ConfigSpec = field(default_factory=ConfigSpec)


class KubeConfigRef(Struct, rename="camel"):
    """The location of a kubeconfig."""

    location: str = ""
    location_type: str = "Secret"


class ClusterSource(Struct, rename="camel"):
    """How a worker cluster is reached; ClusterProfiles are not read."""

    kube_config: KubeConfigRef | None = None


class ClusterSpec(Struct, rename="camel"):
    """How a worker cluster is reached."""

    cluster_source: ClusterSource = field(default_factory=ClusterSource)


class ClusterStatus(Struct):
    """Whether Kueue is connected to the cluster: the condition Active."""

    conditions: list[Condition] | None = None


class MultiKueueCluster(Struct):
    """One worker cluster."""

    metadata: ObjectMeta
    spec: ClusterSpec = field(default_factory=ClusterSpec)
    status: ClusterStatus = field(default_factory=ClusterStatus)

    @property
    def is_active(self) -> bool:
        """Whether Kueue is connected to it."""
        conditions = self.status.conditions or ()
        return any(each.type == "Active" and each.status == "True" for each in conditions)


_PATH: Final = f"/apis/{KUEUE}"
WORKLOADS: Final = Resource(Workload, _PATH, "workloads")
ADMISSION_CHECKS: Final = Resource(AdmissionCheck, _PATH, "admissionchecks", is_namespaced=False)
CONFIGS: Final = Resource(MultiKueueConfig, _PATH, "multikueueconfigs", is_namespaced=False)
CLUSTERS: Final = Resource(MultiKueueCluster, _PATH, "multikueueclusters", is_namespaced=False)
