"""Releases, which run beside the cycle: a plan queues them, and the next cycle does not wait.

The rows that the plan wrote before keep the places. Projects take turns, a workload each, so that a
project with many pods to release holds up no other one's.
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

#: Releases under way at once: enough to keep the API server busy, too few to starve others.
AT_ONCE: Final = 32

log = structlog.get_logger(__name__)


class Releaser:
    """Lets reserved pods go to kube-scheduler, as long as this process leads."""

    def __init__(self, state: ClusterState, writer: PodWriter) -> None:
        self._state = state
        self._writer = writer
        #: By project, its workloads' releases in the order of the plans.
        self._waiting: dict[str, deque[list[Release]]] = {}
        #: What is left of the workload whose turn it is, the last first.
        self._turn: list[Release] = []
        self._in_release: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._narrowing: Narrowing | None = None

    @property
    def in_release(self) -> Set[str]:
        """UIDs of the pods with a release that is queued or under way: a view, not a copy."""
        return self._in_release

    def start(self, project: str, releases: Iterable[Release]) -> None:
        """Queue a workload's releases; those that are queued or under way already are left out."""
        new = [each for each in releases if each.pod.uid not in self._in_release]
        if not new:
            return
        self._in_release.update(each.pod.uid for each in new)
        self._waiting.setdefault(project, deque()).append(new[::-1])
        self._narrowing = None
        for _ in range(min(len(new), AT_ONCE - len(self._tasks))):
            self._tasks.add(asyncio.create_task(self._work()))

    async def close(self) -> None:
        """Give up what has not been sent: this process leads no more."""
        self._forget()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work(self) -> None:
        """Release one pod after the other until none is left."""
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
        # At once, so that `start` counts those alone that still take what is queued.
        self._tasks = {task for task in self._tasks if task is not asyncio.current_task()}

    async def _release(self, release: Release) -> None:
        """Release the pod as the model has it now, if it still has the row of the plan."""
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
            # The others come before it takes another turn.
            del self._waiting[project]
            if workloads:
                self._waiting[project] = workloads
        return self._turn.pop() if self._turn else None

    def _forget(self) -> None:
        self._waiting.clear()
        self._turn.clear()
        self._in_release.clear()
