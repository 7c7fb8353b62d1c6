"""What the last report has seen, so that the next handles only what has changed since."""

from collections.abc import Mapping

from extender.api.reasons import Refused
from extender.cycle.reports.queue_status import PodCounts
from extender.policy.plan import Plan
from extender.state.model import WorkloadView
from extender.state.snapshot import Snapshot


class Seen:
    """The views and wait reasons of the last report, and how many pods are bound."""

    def __init__(self) -> None:
        self._views: Mapping[str, WorkloadView] = {}
        self._waits: Mapping[str, Refused] = {}
        self._counts: dict[str, tuple[str, int, int]] = {}
        self._by_project: dict[str, list[int]] = {}

    def look(self, snapshot: Snapshot, plan: Plan) -> list[str]:
        """Keys of workloads that are new, changed, gone, or have another wait reason; sorted."""
        workloads, before = snapshot.workloads, self._views
        changed = {key for key, view in workloads.items() if before.get(key) is not view}
        changed |= before.keys() - workloads.keys()
        for key in changed:
            self._count(key, workloads.get(key))
        waits = plan.waits
        changed |= {key for key, wait in waits.items() if self._waits.get(key) != wait}
        changed |= self._waits.keys() - waits.keys()
        # Both are immutable.
        self._views, self._waits = workloads, waits
        return sorted(changed)

    def forget(self) -> None:
        """Handle everything again, because a write has failed."""
        self._views, self._waits = {}, {}
        self._counts.clear()
        self._by_project.clear()

    def pods_of_queues(self, snapshot: Snapshot) -> dict[str, PodCounts]:
        """Queue -> (pending pods, bound pods), for projects and their departments."""
        found: dict[str, PodCounts] = {}
        for project, (n_waiting, n_bound) in self._by_project.items():
            view = snapshot.queues.get(project)
            for queue in (project, view.parent) if view else (project,):
                waiting, bound = found.get(queue, (0, 0))
                found[queue] = waiting + n_waiting, bound + n_bound
        return found

    def _count(self, key: str, view: WorkloadView | None) -> None:
        if counted := self._counts.pop(key, None):
            project, n_waiting, n_bound = counted
            self._add(project, -n_waiting, -n_bound)
        if view is not None:
            n_bound = sum(pod.state == "bound" for pod in view.pods)
            n_waiting = len(view.pods) - n_bound
            self._counts[key] = view.project, n_waiting, n_bound
            self._add(view.project, n_waiting, n_bound)

    def _add(self, project: str, n_waiting: int, n_bound: int) -> None:
        counts = self._by_project.setdefault(project, [0, 0])
        counts[0] += n_waiting
        counts[1] += n_bound
