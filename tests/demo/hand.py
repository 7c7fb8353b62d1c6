"""The actions of the demonstration's users: they create and delete workloads, and wait."""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

from tests.demo.trace import Workload, workload_object
from tests.support.auditor.sight import PodSeen
from tests.support.controlplane.admin import AdminApi

WRITERS: Final = 8


class Hand:
    """Acts as the users of the cluster."""

    def __init__(self, admin: AdminApi, speed: float) -> None:
        self._admin = admin
        self._speed = speed
        self._writers = asyncio.Semaphore(WRITERS)

    async def submit(self, workloads: Iterable[Workload]) -> None:
        """Create the workloads' owners at their times."""
        started_s = time.monotonic()
        async with asyncio.TaskGroup() as creations:
            for workload in workloads:
                due_s = started_s + workload.at_ms / 1000 / self._speed
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                creations.create_task(self._call(self._admin.post, *workload_object(workload)))

    async def end(self, pods: Iterable[PodSeen]) -> None:
        """Delete the owners of these pods; the name of an owner is a prefix of its pods' names."""
        async with asyncio.TaskGroup() as deletions:
            for path in {_owner_path(pod) for pod in pods}:
                deletions.create_task(self._call(self._admin.delete, path))

    async def failed_jobs(self) -> tuple[int, list[str]]:
        """The number of Jobs, and those that failed: `namespace/name: reason`."""
        jobs = (await asyncio.to_thread(self._admin.get, "/apis/batch/v1/jobs"))["items"]
        failed = [
            f"{job['metadata']['namespace']}/{job['metadata']['name']}: {condition['reason']}"
            for job in jobs
            for condition in job["status"].get("conditions") or ()
            if condition["type"] == "Failed" and condition["status"] == "True"
        ]
        return len(jobs), failed

    async def until(self, is_met: Callable[[], bool], timeout_s: float) -> bool:
        """Whether `is_met` in time."""
        deadline_s = time.monotonic() + timeout_s
        while not is_met():
            if time.monotonic() > deadline_s:
                return False
            await asyncio.sleep(0.1)
        return True

    async def _call(self, write: Callable[..., object], *args: object) -> None:
        async with self._writers:
            await asyncio.to_thread(write, *args)


def _owner_path(pod: PodSeen) -> str:
    """The path of the pod's owner: a Job's pods have one generated suffix, a Deployment's two."""
    is_job = pod.is_preemptible
    name = pod.name.rsplit("-", 1 if is_job else 2)[0]
    where = "batch/v1/namespaces" if is_job else "apps/v1/namespaces"
    return f"/apis/{where}/{pod.namespace}/{'jobs' if is_job else 'deployments'}/{name}"
