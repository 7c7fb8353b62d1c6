"""What the last report has seen, so that the next handles only what has changed since."""

from collections.abc import Mapping

from extender.api.reasons import Refused
from extender.cycle.reports.queue_status import PodCounts
from extender.policy.plan import Plan
from extender.policy.queues.tree import tally_of
from extender.state.model import WorkloadView
from extender.state.snapshot import Snapshot
from extender.state.tally import Tally


class Seen:
    """The views and wait reasons of the last report, and the pods of projects."""

    def __init__(self) -> None:
        self._views: Mapping[str, WorkloadView] = {}
        self._waits: Mapping[str, Refused] = {}
        self._card_sizes: Mapping[str, int] = {}
        self._counts: dict[str, tuple[str, PodCounts]] = {}
        self._by_project: dict[str, PodCounts] = {}

    def look(self, snapshot: Snapshot, plan: Plan) -> list[str]:
        """Keys of workloads that are new, changed, gone, or have another wait reason; sorted."""
        workloads, before = snapshot.workloads, self._views
        changed = {key for key, view in workloads.items() if before.get(key) is not view}
        changed |= before.keys() - workloads.keys()
        tally = tally_of(snapshot)
        is_resized, self._card_sizes = tally.card_sizes != self._card_sizes, tally.card_sizes
        for key in workloads.keys() | changed if is_resized else changed:
            self._count(key, workloads.get(key), tally)
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
        """The pods of projects and of their departments, by queue."""
        found: dict[str, PodCounts] = {}
        for project, counts in self._by_project.items():
            view = snapshot.queues.get(project)
            for queue in (project, view.parent) if view else (project,):
                found[queue] = counts.plus(found.get(queue, PodCounts()))
        return found

    def _count(self, key: str, view: WorkloadView | None, tally: Tally) -> None:
        if counted := self._counts.pop(key, None):
            self._add(*counted, -1)
        if view is not None:
            self._counts[key] = view.project, _counts_of(view, tally)
            self._add(*self._counts[key], 1)

    def _add(self, project: str, counts: PodCounts, sign: int) -> None:
        self._by_project[project] = self._by_project.get(project, PodCounts()).plus(counts, sign)


def _counts_of(view: WorkloadView, tally: Tally) -> PodCounts:
    """The workload's pods. What they request counts in its first node pool."""
    n_bound = sum(pod.state == "bound" for pod in view.pods)
    first, *more = tally.pending_milli(view).values() or (0,)
    nominated = (p for p in view.pods if p.state == "nominated" and not p.is_terminating)
    return PodCounts(
        pending=len(view.pods) - n_bound,
        bound=n_bound,
        waiting_milli=first + sum(pod.held_milli for pod in nominated),
        repeated_milli=sum(more),
    )
