"""JobSet, which Kubeflow's Trainer also creates for a TrainJob: all its Jobs form one gang.

A Job that starts only after others (in order, or by `dependsOn`) has a later stage. A replicated
Job that has succeeded needs no more pods. So the trainer of a TrainJob is a gang of its own, though
it starts after Jobs that fetch the data: those request no GPU. The JobSet's status may show a
success only after the pods that waited for it exist, so their existence counts.

With exclusive placement JobSet's own webhook refuses the pods of a Job until the first of them has
a node, so the gang waits only for the first pod of each Job.

Source: kubernetes-sigs/jobset api/jobset/v1alpha2, pkg/webhooks, pkg/controllers; kubeflow/trainer
pkg/runtime.
"""

from typing import Final

from msgspec import Struct, field

from extender.api.jobs import JobSpec, pods_at_once
from extender.api.objects import ObjectMeta
from webhooks.owners.origin import Owner, OwnerShape, Role

NAME: Final = "jobset.sigs.k8s.io/jobset-name"
UID: Final = "jobset.sigs.k8s.io/jobset-uid"
REPLICATED_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
#: Annotations of a JobSet, or of a template of its Jobs: each Job has a topology domain to itself,
#: which its first pod chooses, or which somebody has chosen by labels of nodes.
EXCLUSIVE: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
BY_NODE_LABEL: Final = "alpha.jobset.sigs.k8s.io/node-selector"


class _JobTemplate(Struct):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: JobSpec = field(default_factory=JobSpec)


class _Dependency(Struct):
    name: str = ""
    status: str = ""


class _ReplicatedJob(Struct, rename="camel"):
    name: str = ""
    replicas: int = 1
    template: _JobTemplate = field(default_factory=_JobTemplate)
    depends_on: list[_Dependency] | None = None


class _StartupPolicy(Struct, rename="camel"):
    startup_policy_order: str = ""


class _JobSetSpec(Struct, rename="camel"):
    replicated_jobs: list[_ReplicatedJob] | None = None
    startup_policy: _StartupPolicy | None = None


class _ReplicatedJobStatus(Struct):
    name: str = ""
    succeeded: int = 0


class _JobSetStatus(Struct, rename="camel"):
    replicated_jobs_status: list[_ReplicatedJobStatus] | None = None


class JobSet(Owner):
    """A JobSet."""

    spec: _JobSetSpec = field(default_factory=_JobSetSpec)
    status: _JobSetStatus = field(default_factory=_JobSetStatus)


def roles_of(meta: ObjectMeta) -> tuple[str, ...]:
    """The replicated Job that the pod belongs to."""
    return (meta.label(REPLICATED_JOB),)


def shape(job_set: JobSet) -> OwnerShape:
    """One role for each replicated Job."""
    policy = job_set.spec.startup_policy
    is_in_order = policy is not None and policy.startup_policy_order == "InOrder"
    done = {each.name: each.succeeded for each in job_set.status.replicated_jobs_status or ()}
    stages: dict[str, int] = {}
    ended: dict[str, frozenset[str]] = {}
    roles = []
    for ix, job in enumerate(job_set.spec.replicated_jobs or ()):
        before = [each for each in job.depends_on or () if each.name in stages]
        later = 1 + max((stages[each.name] for each in before), default=-1)
        stages[job.name] = ix if is_in_order else later
        complete = frozenset(each.name for each in before if each.status == "Complete")
        ended[job.name] = complete.union(*(ended[each.name] for each in before))
        is_over = done.get(job.name, 0) >= job.replicas
        n_pods = 0 if is_over else job.replicas * _at_once(job_set, job.template)
        template = job.template.spec.template
        roles.append(Role(job.name, n_pods, template, stages[job.name], ended[job.name]))
    return OwnerShape(roles)


def _at_once(job_set: JobSet, template: _JobTemplate) -> int:
    """How many pods of each Job are created without waiting for others of it."""
    n_pods = pods_at_once(template.spec.parallelism, template.spec.completions)
    said = {**(job_set.metadata.annotations or {}), **(template.metadata.annotations or {})}
    return min(n_pods, 1) if EXCLUSIVE in said and BY_NODE_LABEL not in said else n_pods
