"""Reads the Jobs of gangs with fewer pods than the pods state: a Job that was scaled down, or has a
permanently failed index, creates no more pods.

A Job is read by name once its gang has been short for some seconds, and again from time to time.
Watching all Jobs of a cluster would cost more than reading the few that are short of pods.
"""

import asyncio
from typing import Final

import structlog

from extender.api.jobs import Job, count_indexes, pods_at_once
from extender.api.objects import PodTemplateSpec
from extender.api.units import UnitError
from extender.api.workload import read_min_member
from extender.kube.client import Client
from extender.kube.errors import KubeError, NotFound, NotLeading
from extender.kube.resources import JOBS
from extender.state.cluster import ClusterState
from extender.state.workloads.stated import ShortJob

#: Seconds that a gang is short before its Job is read: its pods are created one after the other.
_FIRST_S: Final = 5.0
#: Seconds after which the Job is read again.
_AGAIN_S: Final = 10.0
#: Jobs read again per second; if there are more, each is read less often.
_READS_A_SECOND: Final = 5
#: Jobs read in one pass; others wait for the next.
_READS_A_PASS: Final = 16

log = structlog.get_logger(__name__)


class JobReader:
    """Keeps the model's sizes of Jobs up to date."""

    def __init__(self, client: Client, state: ClusterState) -> None:
        self._client = client
        self._state = state
        self._due: dict[ShortJob, float] = {}

    async def keep(self) -> None:
        """Read the Jobs that are due, longest due first; forget Jobs that are no longer short."""
        now = asyncio.get_running_loop().time()
        short = self._state.short_jobs()
        for job in self._due.keys() - short:
            del self._due[job]
            self._state.set_job_size(job, None)
        for job in short - self._due.keys():
            self._due[job] = now + _FIRST_S
        due = [job for job, at in self._due.items() if at <= now]
        due.sort(key=lambda job: (self._due[job], job.key))
        async with asyncio.TaskGroup() as tasks:
            for job in due[:_READS_A_PASS]:
                tasks.create_task(self._read(job, now))

    async def _read(self, job: ShortJob, now: float) -> None:
        self._due[job] = now + max(_AGAIN_S, len(self._due) / _READS_A_SECOND)
        try:
            found = await self._client.get(JOBS, job.name, job.namespace)
        except NotLeading:
            raise
        except NotFound:
            self._state.set_job_size(job, None)
        except KubeError as error:
            log.warning("Job not read", job=f"{job.namespace}/{job.name}", error=str(error))
        else:
            n_pods = size_of(found) if found.metadata.uid == job.uid else None
            self._state.set_job_size(job, n_pods)


def size_of(job: Job) -> int | None:
    """How many pods the Job runs at once; None if the size of its gang comes from elsewhere.

    That is from an owner of the Job, from a PodGroup, or from its author's labels on the pods.
    """
    above, spec, template = job.metadata.controller, job.spec, job.spec.template
    is_below_another = above is not None and above.kind != "CronJob"
    if is_below_another or template.spec.scheduling_group is not None or _is_stated(template):
        return None
    is_indexed = spec.completion_mode == "Indexed"
    n_failed = count_indexes(job.status.failed_indexes) if is_indexed else 0
    return pods_at_once(spec.parallelism, spec.completions, n_failed)


def _is_stated(template: PodTemplateSpec) -> bool:
    meta = template.metadata
    try:
        return read_min_member(meta.annotations, meta.labels) > 0
    except UnitError:
        return True
