"""The figures of the demonstration, from the history that the auditor judges.

`Board` listens to the auditor's steps; `figures()` is the state at one moment. `screen` draws it.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from tests.support.auditor import Auditor
from tests.support.auditor.sight import EventSeen, PodSeen
from tests.support.auditor.world import Step, World


@dataclass(slots=True, frozen=True)
class QueueFigures:
    """A department (`parent` empty) or project; milli-GPU, and pods."""

    name: str
    parent: str
    quota: int
    fair_share: int
    allocated: int
    pending_milli: int
    pending_pods: int
    evicted: int


@dataclass(slots=True, frozen=True)
class Figures:
    """The figures at one moment. `cards_shared` counts cards with more than one pod."""

    queues: tuple[QueueFigures, ...]
    nodes: int
    nodes_used: int
    cards: int
    cards_used: int
    cards_shared: int
    allocated: int
    bound: int
    evicted: int
    violations: int


class Board:
    """Counts binds and evictions of pods of projects."""

    def __init__(self, auditor: Auditor) -> None:
        self._auditor = auditor
        self._evicted: Counter[str] = Counter()
        #: Evicted pods, in the order of their eviction.
        self.evictions: list[PodSeen] = []
        self._created_s: dict[str, float] = {}
        #: Our events on evicted pods, by reason.
        self.reasons: Counter[str] = Counter()
        self._last_reason: dict[str, str] = {}
        self.bound_s: dict[str, float] = {}
        self.waits_s: list[float] = []
        self.most_shared = 0
        auditor.checker.listeners.append(self._listen)

    @property
    def world(self) -> World:
        """The state as of the last revision."""
        return self._auditor.checker.world

    def capacity(self) -> int:
        """Milli-GPU of all cards."""
        return 1000 * sum(len(ledger.devices) for ledger in self.world.ledgers.values())

    def allocated(self, project: str) -> int:
        """Milli-GPU that the project's rows hold."""
        return sum(row.milli for _, row in self.world.live_rows() if row.project == project)

    def figures(self) -> Figures:
        """The present figures. O(pods + rows)."""
        world = self.world
        held: Counter[str] = Counter()
        pods_on: Counter[tuple[str, int]] = Counter()
        for node, row in world.live_rows():
            held[row.project] += row.milli
            pods_on.update((node, share.index) for share in row.cards)
        shared = sum(count > 1 for count in pods_on.values())
        self.most_shared = max(self.most_shared, shared)
        projects = self._projects(held)
        return Figures(
            queues=tuple(self._with_departments(projects)),
            nodes=len(world.ledgers),
            nodes_used=len({node for node, _ in pods_on}),
            cards=sum(len(ledger.devices) for ledger in world.ledgers.values()),
            cards_used=len(pods_on),
            cards_shared=shared,
            allocated=sum(held.values()),
            bound=len(self.bound_s),
            evicted=self._evicted.total(),
            violations=len(self._auditor.violations),
        )

    def peak_binds(self, window_s: float = 1.0) -> int:
        """The largest number of pods that were bound within a window of this length."""
        times = sorted(self.bound_s.values())
        first = most = 0
        for last, time_s in enumerate(times):
            while time_s - times[first] > window_s:
                first += 1
            most = max(most, last - first + 1)
        return most

    def median_wait_s(self) -> float:
        """Median time from creation to binding of all bound pods."""
        return median(self.waits_s) if self.waits_s else 0.0

    def waiting(self) -> list[PodSeen]:
        """Pending GPU pods of projects."""
        return [
            pod
            for pod in self.world.pods.values()
            if pod.asked is not None and not pod.node and not pod.has_ended and not pod.is_leaving
        ]

    def smallest_wait(self, project: str) -> int | None:
        """Milli-GPU of the project's smallest pending workload; None if there is none."""
        sums: Counter[str] = Counter()
        for pod in self.waiting():
            if pod.project == project and pod.asked is not None:
                sums[pod.group or pod.name] += pod.asked.devices * pod.asked.milli
        return min(sums.values(), default=None)

    def why(self, project: str) -> str:
        """Why pods of the project are pending, from the last event on each."""
        told = Counter(
            self._last_reason.get(pod.uid, "not told")
            for pod in self.waiting()
            if pod.project == project
        )
        return ", ".join(f"{n} {reason}" for reason, n in told.most_common()) or "none waits"

    def free_cards(self) -> dict[str, int]:
        """Number of free cards by node."""
        return {
            name: len(ledger.devices) - len({c.index for row in ledger.rows for c in row.cards})
            for name, ledger in self.world.ledgers.items()
        }

    # -- inside ------------------------------------------------------------------------------

    def _listen(self, step: Step) -> None:
        before, pod = step.before, step.after
        if isinstance(pod, EventSeen) and before is None:
            self.reasons[pod.reason] += 1
            self._last_reason[pod.uid] = pod.reason
        if not isinstance(pod, PodSeen) or pod.asked is None:
            return
        if before is None:
            self._created_s[pod.uid] = step.change.seen_s
        was_on = before.node if isinstance(before, PodSeen) else ""
        if pod.node and not was_on:
            self.bound_s[pod.uid] = step.change.seen_s
            created_s = self._created_s.pop(pod.uid, None)
            if created_s is not None:
                self.waits_s.append(step.change.seen_s - created_s)
        if pod.eviction and isinstance(before, PodSeen) and not before.eviction:
            self._evicted[pod.project] += 1
            self.evictions.append(pod)

    def _projects(self, held: Counter[str]) -> list[QueueFigures]:
        pending: Counter[str] = Counter()
        waiting: Counter[str] = Counter()
        for pod in self.world.pods.values():
            if pod.asked is not None and not pod.node and not pod.has_ended:
                waiting[pod.project] += 1
                pending[pod.project] += pod.asked.devices * pod.asked.milli
        return [
            QueueFigures(
                name=name,
                parent=queue.department,
                quota=sum(queue.quota.values()),
                fair_share=sum(queue.fair_share.values()),
                allocated=held[name],
                pending_milli=pending[name],
                pending_pods=waiting[name],
                evicted=self._evicted[name],
            )
            for name, queue in sorted(self.world.projects.items())
        ]

    def _with_departments(self, projects: list[QueueFigures]) -> Iterable[QueueFigures]:
        for name, department in sorted(self.world.departments.items()):
            children = [each for each in projects if each.parent == name]
            yield QueueFigures(
                name=name,
                parent="",
                quota=sum(department.quota.values()),
                fair_share=sum(department.fair_share.values()),
                allocated=sum(each.allocated for each in children),
                pending_milli=sum(each.pending_milli for each in children),
                pending_pods=sum(each.pending_pods for each in children),
                evicted=sum(each.evicted for each in children),
            )
            yield from children
