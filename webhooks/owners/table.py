"""The known kinds of owners, one entry each; for an unknown kind, the pods of one owner form a
group.

An entry says how a pod's labels name such an owner (`claim`), where the owner is read (`plural`,
`version`; empty if never), and which gang it implies (`shape`). A kind that is read needs the verb
`get` in manifests/base/rbac/webhooks.yaml; a test compares the two.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from extender.api.objects import ObjectMeta, OwnerReference
from webhooks.owners import batch, jobset, kubeflow, ray
from webhooks.owners import leaderworkerset as lws
from webhooks.owners.origin import Owner, OwnerShape

INFERENCE: Final = "inference"
INTERACTIVE: Final = "interactive"


@dataclass(slots=True, frozen=True)
class OwnerClaim:
    """The owner that a pod's labels name; `uid` is empty if the labels do not have it."""

    name: str
    uid: str = ""


def _alone(_owner: Any) -> None:
    return None


@dataclass(slots=True, frozen=True, eq=False)
class OwnerKind:
    """One kind of owner.

    `shape` returns None if the pods don't need one another; without it the pods are a group of
    unknown size. `shape_of_named` replaces a None of `shape` if the pods name their group
    themselves. `part_of` names the part of the owner that forms a group of its own, `roles_of` the
    roles that the pod may have, the narrowest first: the first that the owner has is the pod's.
    `climbs`: another known kind may own it. `version` is read if no reference names one.
    """

    api_group: str
    kind: str
    shape: Callable[[Any], OwnerShape | None] | None = None
    version: str = ""
    plural: str = ""
    document: type[Owner] = Owner
    claim: Callable[[ObjectMeta, OwnerReference], OwnerClaim | None] | None = None
    part_of: Callable[[ObjectMeta], str] | None = None
    roles_of: Callable[[ObjectMeta], tuple[str, ...]] | None = None
    work: str = ""
    climbs: bool = False
    shape_of_named: Callable[[Any], OwnerShape] | None = None

    @property
    def is_alone(self) -> bool:
        """Whether owners of this kind never need their pods to run together."""
        return self.shape is _alone


def _by_label(key: str) -> Callable[[ObjectMeta, OwnerReference], OwnerClaim | None]:
    """A claim by one label, whose value is the owner's name."""

    def claim(meta: ObjectMeta, _ref: OwnerReference) -> OwnerClaim | None:
        name = meta.label(key)
        return OwnerClaim(name) if name else None

    return claim


def _of_job_set(meta: ObjectMeta, _ref: OwnerReference) -> OwnerClaim | None:
    name = meta.label(jobset.NAME)
    return OwnerClaim(name, meta.label(jobset.UID)) if name else None


def _of_lws(meta: ObjectMeta, _ref: OwnerReference) -> OwnerClaim | None:
    name = meta.label(lws.NAME)
    return OwnerClaim(name) if name and lws.replica_of(meta) else None


def _of_mpi_launcher(meta: ObjectMeta, ref: OwnerReference) -> OwnerClaim | None:
    name = meta.label(kubeflow.JOB_NAME)
    is_launcher = ref.kind == "Job" and meta.label(kubeflow.OPERATOR) == kubeflow.MPI_OPERATOR
    return OwnerClaim(name) if name and is_launcher else None


def _of_ray_service(meta: ObjectMeta, ref: OwnerReference) -> OwnerClaim | None:
    if ref.kind == "RayCluster" and ray.is_of_service(meta):
        return OwnerClaim(ref.name, ref.uid)
    return None


def _of_spark(meta: ObjectMeta, _ref: OwnerReference) -> OwnerClaim | None:
    if not meta.label("spark-role"):
        return None
    name = meta.label("sparkoperator.k8s.io/app-name") or meta.label("spark-app-selector")
    return OwnerClaim(name) if name else None


def _of_deployment(meta: ObjectMeta, ref: OwnerReference) -> OwnerClaim | None:
    """The Deployment of a ReplicaSet, whose name ends in the hash of the pod template."""
    end = f"-{meta.label('pod-template-hash')}"
    if ref.kind == "ReplicaSet" and len(end) > 1 and ref.name.endswith(end):
        return OwnerClaim(ref.name.removesuffix(end))
    return None


def _of_plain_job(meta: ObjectMeta, ref: OwnerReference) -> OwnerClaim | None:
    is_job = ref.kind == "Job" and ref.api_version.startswith("batch/")
    return OwnerClaim(ref.name, ref.uid) if is_job and batch.is_plain(meta) else None


def _kubeflow(kind: str, plural: str, version: str = "v1", **more: Any) -> OwnerKind:
    return OwnerKind(
        "kubeflow.org",
        kind,
        kubeflow.shape,
        version,
        plural,
        kubeflow.KubeflowJob,
        roles_of=kubeflow.roles_of,
        **more,
    )


def _ray(**more: Any) -> OwnerKind:
    return OwnerKind(
        "ray.io",
        "RayCluster",
        ray.shape,
        "v1",
        "rayclusters",
        ray.RayCluster,
        roles_of=ray.roles_of,
        **more,
    )


#: Claims are tried in this order, so a kind that creates other known kinds comes before them.
TABLE: Final[Sequence[OwnerKind]] = (
    OwnerKind(
        "leaderworkerset.x-k8s.io",
        "LeaderWorkerSet",
        lws.shape,
        "v1",
        "leaderworkersets",
        lws.LeaderWorkerSet,
        claim=_of_lws,
        part_of=lws.replica_of,
        roles_of=lws.roles_of,
    ),
    OwnerKind(
        "jobset.x-k8s.io",
        "JobSet",
        jobset.shape,
        "v1alpha2",
        "jobsets",
        jobset.JobSet,
        claim=_of_job_set,
        roles_of=jobset.roles_of,
    ),
    _kubeflow("MPIJob", "mpijobs", "v2beta1", claim=_of_mpi_launcher),
    _kubeflow("PyTorchJob", "pytorchjobs"),
    _kubeflow("TFJob", "tfjobs"),
    _kubeflow("XGBoostJob", "xgboostjobs"),
    _kubeflow("JAXJob", "jaxjobs"),
    _kubeflow("PaddleJob", "paddlejobs"),
    _ray(claim=_of_ray_service, work=INFERENCE),
    _ray(),
    # The driver creates the executors once it runs, and uses those that there are.
    OwnerKind("sparkoperator.k8s.io", "SparkApplication", _alone, claim=_of_spark),
    OwnerKind(
        "kubeflow.org",
        "Notebook",
        _alone,
        claim=_by_label("notebook-name"),
        work=INTERACTIVE,
    ),
    OwnerKind(
        "serving.kserve.io",
        "InferenceService",
        _alone,
        claim=_by_label("serving.kserve.io/inferenceservice"),
        work=INFERENCE,
    ),
    OwnerKind(
        "serving.knative.dev",
        "Service",
        _alone,
        claim=_by_label("serving.knative.dev/service"),
        work=INFERENCE,
    ),
    # Steps run one after the other, in the order of the workflow.
    OwnerKind("argoproj.io", "Workflow", _alone),
    OwnerKind("apps", "Deployment", _alone, claim=_of_deployment),
    OwnerKind("apps", "ReplicaSet", _alone),
    OwnerKind("", "ReplicationController", _alone),
    OwnerKind("apps", "StatefulSet", _alone, "v1", "statefulsets", climbs=True),
    OwnerKind("batch", "Job", _alone, claim=_of_plain_job),
    OwnerKind(
        "batch",
        "Job",
        batch.shape,
        "v1",
        "jobs",
        batch.Job,
        climbs=True,
        shape_of_named=batch.shape_of_named,
    ),
)

#: By API group and kind; of two entries for one kind, the later is used for owners that no claim
#: names.
BY_KIND: Final = {(each.api_group, each.kind): each for each in TABLE}
CLAIMING: Final = [(each, each.claim) for each in TABLE if each.claim is not None]
