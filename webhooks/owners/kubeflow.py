"""PyTorchJob, TFJob, MPIJob, XGBoostJob, JAXJob, PaddleJob: all replicas of all types form one
gang.

The operators create all pods at once, except an MPI launcher that is set to wait for its workers.
An elastic job needs only its minimum number of workers, and among them the first: the others meet
there, unless the job names another host. A minimum that the author stated for other schedulers
counts here too; the pod that leads the others is in it.

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
REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"
JOB_ROLE: Final = "training.kubeflow.org/job-role"
#: Replica types of one pod without which the others do nothing.
LEADERS: Final = frozenset(("Master", "Chief", "Launcher"))
#: The role of the first worker, if the others need it.
FIRST_WORKER: Final = "worker-0"


class _ReplicaSpec(Struct):
    replicas: int | None = None
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)


class _SchedulingPolicy(Struct, rename="camel"):
    min_available: int | None = None


class _RunPolicy(Struct, rename="camel"):
    scheduling_policy: _SchedulingPolicy | None = None


class _ElasticPolicy(Struct, rename="camel"):
    min_replicas: int | None = None
    rdzv_host: str | None = None


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


def roles_of(meta: ObjectMeta) -> tuple[str, ...]:
    """The pod's replica type in lower case, as the operators write it, and before it the role of
    the first worker."""
    role = (meta.label(REPLICA_TYPE) or meta.label(JOB_ROLE)).lower()
    is_first = role == "worker" and meta.label(REPLICA_INDEX) == "0"
    return (FIRST_WORKER, role) if is_first else (role,)


def shape(job: KubeflowJob) -> OwnerShape:
    """One role for each replica type, and one for the worker where the others meet."""
    spec = job.spec
    policy = spec.run_policy.scheduling_policy if spec.run_policy else None
    stated = (policy.min_available or 0) if policy else 0
    roles = []
    for name, replica in spec.replicas.items():
        n_pods = 1 if replica.replicas is None else replica.replicas
        if name == "Worker" and (elastic := spec.elastic_policy):
            if elastic.min_replicas and not stated:
                n_pods = min(n_pods, elastic.min_replicas)
            if n_pods > 0 and not elastic.rdzv_host:
                n_pods -= 1
                roles.append(Role(FIRST_WORKER, 1, replica.template, is_leader=True))
        waits = name == "Launcher" and spec.launcher_creation_policy == "WaitForWorkersReady"
        role = Role(name.lower(), n_pods, replica.template, int(waits), is_leader=name in LEADERS)
        roles.append(role)
    return OwnerShape(roles, stated)
