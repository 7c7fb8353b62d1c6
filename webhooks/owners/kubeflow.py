"""PyTorchJob, TFJob, MPIJob, XGBoostJob, JAXJob, PaddleJob: all replicas of all types form one
gang.

The operators create all pods at once, except an MPI launcher that is set to wait for its workers.
An elastic job needs only its minimum number of workers. A minimum that the author stated for other
schedulers counts here too.

Source: kubeflow/training-operator pkg/apis/kubeflow.org/v1; kubeflow/mpi-operator v2beta1.
"""

from typing import Final

from msgspec import Struct, field

from extender.api.objects import ObjectMeta, PodTemplateSpec
from webhooks.owners.origin import Owner, OwnerShape, Role

JOB_NAME: Final = "training.kubeflow.org/job-name"
OPERATOR: Final = "training.kubeflow.org/operator-name"
#: The name by which mpi-operator (v2beta1) labels pods. A Job creates the launcher, so only this
#: label tells its owner.
MPI_OPERATOR: Final = "mpi-operator"
REPLICA_TYPE: Final = "training.kubeflow.org/replica-type"
JOB_ROLE: Final = "training.kubeflow.org/job-role"


class _ReplicaSpec(Struct):
    replicas: int | None = None
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)


class _SchedulingPolicy(Struct, rename="camel"):
    min_available: int | None = None


class _RunPolicy(Struct, rename="camel"):
    scheduling_policy: _SchedulingPolicy | None = None


class _ElasticPolicy(Struct, rename="camel"):
    min_replicas: int | None = None


_Replicas = dict[str, _ReplicaSpec]


class _KubeflowSpec(
    Struct,
    rename={
        "pytorch": "pytorchReplicaSpecs",
        "tensorflow": "tfReplicaSpecs",
        "mpi": "mpiReplicaSpecs",
        "xgboost": "xgbReplicaSpecs",
        "jax": "jaxReplicaSpecs",
        "paddle": "paddleReplicaSpecs",
        "run_policy": "runPolicy",
        "elastic_policy": "elasticPolicy",
        "launcher_creation_policy": "launcherCreationPolicy",
    },
):
    pytorch: _Replicas | None = None
    tensorflow: _Replicas | None = None
    mpi: _Replicas | None = None
    xgboost: _Replicas | None = None
    jax: _Replicas | None = None
    paddle: _Replicas | None = None
    run_policy: _RunPolicy | None = None
    elastic_policy: _ElasticPolicy | None = None
    launcher_creation_policy: str = "AtStartup"

    @property
    def replicas(self) -> _Replicas:
        """The replica specs by type; the name of the field depends on the kind."""
        named = (self.pytorch, self.tensorflow, self.mpi, self.xgboost, self.jax, self.paddle)
        return next(filter(None, named), {})


class KubeflowJob(Owner):
    """A job of any of these kinds."""

    spec: _KubeflowSpec = field(default_factory=_KubeflowSpec)


def role_of(meta: ObjectMeta) -> str:
    """The pod's replica type in lower case, as the operators write it."""
    return (meta.label(REPLICA_TYPE) or meta.label(JOB_ROLE)).lower()


def shape(job: KubeflowJob) -> OwnerShape:
    """One role for each replica type."""
    spec = job.spec
    policy = spec.run_policy.scheduling_policy if spec.run_policy else None
    roles = []
    for name, replica in spec.replicas.items():
        n_pods = 1 if replica.replicas is None else replica.replicas
        if name == "Worker" and spec.elastic_policy and spec.elastic_policy.min_replicas:
            n_pods = min(n_pods, spec.elastic_policy.min_replicas)
        waits = name == "Launcher" and spec.launcher_creation_policy == "WaitForWorkersReady"
        roles.append(Role(name.lower(), n_pods, replica.template, int(waits)))
    return OwnerShape(roles, (policy.min_available or 0) if policy else 0)
