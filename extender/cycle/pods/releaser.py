"""Runs releases beside the cycle: a plan queues them, and the next cycle does not wait.

The rows that the plan wrote reserve the cards. Projects take turns by workload, so a project with
many pods to release does not delay others.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Set
from typing import Final

import structlog

from extender.cycle.pods.narrow import Narrowing
from extender.cycle.pods.writer import PodWriter, Release
from extender.kube.errors import NotLeading
from extender.state.cluster import ClusterState

#: Releases in flight: enough to keep the API server busy, too few to starve other clients.
AT_ONCE: Final = 32

log = structlog.get_logger(__name__)


class Releaser:
    """Releases reserved pods to kube-scheduler while this process leads."""

    def __init__(self, state: ClusterState, writer: PodWriter) -> None:
        self._state = state
        self._writer = writer
        #: By project, the releases of its workloads in the order of the plans.
        self._waiting: dict[str, deque[list[Release]]] = {}
        #: Remaining releases of the workload that is being released, in reverse order.
        self._turn: list[Release] = []
        self._in_release: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._narrowing: Narrowing | None = None

    @property
    def in_release(self) -> Set[str]:
        """UIDs of pods with a release queued or in flight: a live view, not a copy."""
        return self._in_release

    def start(self, project: str, releases: Iterable[Release]) -> None:
        """Queue a workload's releases, except those already queued or in flight."""
        new = [each for each in releases if each.pod.uid not in self._in_release]
        if not new:
            return
        self._in_release.update(each.pod.uid for each in new)
        self._waiting.setdefault(project, deque()).append(new[::-1])
        self._narrowing = None
        for _ in range(min(len(new), AT_ONCE - len(self._tasks))):
            self._tasks.add(asyncio.create_task(self._work()))

    async def close(self) -> None:
        """Give up releases not yet sent: this process no longer leads."""
        self._forget()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work(self) -> None:
        """Release pods one by one until none is queued."""
        while (release := self._next()) is not None:
            try:
                await self._release(release)
            except NotLeading:
                self._forget()
            except Exception:
                # The pod keeps its row, and the next cycle's recovery queues it again.
                log.exception("release broke", pod=release.pod.key)
            finally:
                self._in_release.discard(release.pod.uid)
        # Removed at once, so that `start` counts only tasks that still take queued releases.
        self._tasks = {task for task in self._tasks if task is not asyncio.current_task()}

    async def _release(self, release: Release) -> None:
        """Release the pod as the model has it now, if it still has the plan's row."""
        pod = self._state.pod(release.pod.uid)
        planned = ("reserved", release.node, release.epoch)
        if pod is None or pod.is_released or (pod.state, pod.node, pod.epoch) != planned:
            return
        self._narrowing = self._narrowing or Narrowing(self._state)
        await self._writer.release(Release(pod, release.node, release.epoch), self._narrowing)

    def _next(self) -> Release | None:
        if not self._turn and self._waiting:
            project, workloads = next(iter(self._waiting.items()))
            self._turn = workloads.popleft()
            # The project goes to the end of the queue.
            del self._waiting[project]
            if workloads:
                self._waiting[project] = workloads
        return self._turn.pop() if self._turn else None

    def _forget(self) -> None:
        self._waiting.clear()
        self._turn.clear()
        self._in_release.clear()
