"""Job: which of its pods form a gang.

The pods of an Indexed Job that all run at once form a gang. Pods of any other Job start one by one,
unless they name a group: then the pods that run at once form a gang.

With fewer pods at a time than completions, or without an index, a pod has no known peers: it takes
the next piece of work and ends. Indices that have failed for good get no more pods, so a recreated
pod does not wait for them.

Source: kubernetes/api batch/v1 JobSpec; labels of KEP-2214 and KEP-4017.
"""

from typing import Final

from msgspec import field

from extender.api.jobs import JobSpec, JobStatus, count_indexes, pods_at_once
from extender.api.objects import ObjectMeta
from webhooks.owners.origin import Owner, OwnerShape, Role

#: Set on the pods of an Indexed Job: a label since 1.28, before that only an annotation.
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"


class Job(Owner):
    """A Job of batch/v1."""

    spec: JobSpec = field(default_factory=JobSpec)
    status: JobStatus = field(default_factory=JobStatus)


def is_plain(meta: ObjectMeta) -> bool:
    """Whether this pod of a Job has no index, and thus no known peers."""
    return not meta.label(COMPLETION_INDEX) and not meta.annotation(COMPLETION_INDEX)


def shape(job: Job) -> OwnerShape | None:
    """The gang of a Job that runs all indices at once, else None."""
    spec = job.spec
    n = spec.completions or 0
    if spec.completion_mode != "Indexed" or n < 2 or spec.parallelism != n:
        return None
    n_possible = n - count_indexes(job.status.failed_indexes)
    return OwnerShape([Role("", n_possible, spec.template)])


def shape_of_named(job: Job) -> OwnerShape:
    """The gang of a Job whose pods name a group without a size: all pods that run at once."""
    spec = job.spec
    n_failed = count_indexes(job.status.failed_indexes) if spec.completion_mode == "Indexed" else 0
    n_possible = pods_at_once(spec.parallelism, spec.completions, n_failed)
    return OwnerShape([Role("", n_possible, spec.template)])
