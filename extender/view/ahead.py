"""Simulates the cluster ahead of time: a decision after each end of a pod, until all work starts.

Nothing is submitted, every pod runs for its stated time, and victims terminate at once. So a run is
as exact as the run times, except for workloads that are submitted later. Pure.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Final

from msgspec.structs import replace as replaced

from extender.policy.plan import Placement, Plan
from extender.state.model import PodView, WorkloadView
from extender.view.picture import Picture, waits

#: Ends of pods within this time are handled by one decision.
GRAIN_S: Final = 30
#: The horizon of a run, and its maximum number of decisions.
HORIZON_S: Final = 24 * 3600
MOST_DECISIONS: Final = 1500

#: Seconds that a pod of the workload runs from its start; None: it never ends.
RunOf = Callable[[WorkloadView], int | None]


def _stated_run(workload: WorkloadView) -> int | None:
    """The run time that the user stated."""
    return workload.expected_run_s


def never() -> None:
    """Continue without a pause."""


@dataclass(slots=True)
class Ahead:
    """One run. `starts` is the start of each pending workload (unix seconds), as far as it is
    known; `is_cut`: it needed more than `MOST_DECISIONS`. `pause` is called after each decision, so
    that a caller can share its core."""

    picture: Picture
    run_of: RunOf = _stated_run
    pause: Callable[[], None] = never
    starts: dict[str, int] = field(default_factory=dict)
    is_cut: bool = False
    now_s: int = field(init=False)
    _workloads: dict[str, WorkloadView] = field(init=False)
    _ends: list[tuple[int, str, str, int]] = field(default_factory=list)
    _saved_s: dict[str, int] = field(default_factory=dict)
    _waiting: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        snapshot = self.picture.snapshot
        snapshot = replace(snapshot, nodes=snapshot.nodes.copy(), tally=None)
        self.picture = Picture(snapshot, self.picture.settings)
        self.now_s = snapshot.now_s
        self._workloads = dict(snapshot.workloads)
        for workload in snapshot.workloads.values():
            if any(map(waits, workload.pods)):
                self._waiting.add(workload.key)
            for pod in workload.pods:
                if pod.node and pod.state != "nominated":
                    self._will_end(workload, pod)

    def run(self) -> Mapping[str, int]:
        """Run until all pending workloads have started, or to the horizon; returns `starts`."""
        end_s = self.now_s + HORIZON_S
        for _ in range(MOST_DECISIONS):
            plan = self._decided()
            self._carry_out(plan)
            self.pause()
            if not self._waiting:
                break
            if plan.evictions or plan.moves or plan.drops:
                # Victims are pending again, and may be placed at once.
                self.now_s += GRAIN_S
            elif self._ends and self._ends[0][0] < end_s:
                self.now_s = max(self.now_s, -(-self._ends[0][0] // GRAIN_S) * GRAIN_S)
            else:
                break
            self._end_until(self.now_s)
        else:
            self.is_cut = True
        return self.starts

    def _decided(self) -> Plan:
        snapshot = self.picture.snapshot
        snapshot.now_s, snapshot.workloads, snapshot.tally = self.now_s, self._workloads, None
        return self.picture.decided()

    def _carry_out(self, plan: Plan) -> None:
        """Remove victims at once, and start placed pods."""
        after: dict[str, dict[str, PodView | None]] = {}
        for key in plan.drops:
            for pod in self._workloads[key].pods:
                if pod.state == "nominated":
                    self._release(pod)
                    after.setdefault(key, {})[pod.uid] = pod.made_again()
        for eviction in plan.evictions:
            self._stop(eviction.workload, eviction.pod)
            pods = after.setdefault(eviction.workload, {})
            pods[eviction.pod.uid] = eviction.pod.after_eviction()
        for move in plan.moves:
            pod = move.pod
            self._stop(move.workload, pod)
            after.setdefault(move.workload, {})[pod.uid] = self._start(move.placement)
        for admission in plan.admissions:
            pods = after.setdefault(admission.workload.key, {})
            for placement in admission.placements:
                pods[placement.pod.uid] = self._start(placement)
        for key, pods in after.items():
            self._replace(key, pods)

    def _replace(self, key: str, pods: Mapping[str, PodView | None]) -> None:
        before = self._workloads[key]
        live = tuple(p for pod in before.pods if (p := pods.get(pod.uid, pod)) is not None)
        if not live:
            del self._workloads[key]
            self._waiting.discard(key)
            return
        is_new = not any(map(waits, before.pods)) and any(map(waits, live))
        since_s = self.now_s if is_new else before.waits_since
        after = self._workloads[key] = replaced(before, pods=live, waits_since=since_s)
        for pod in live:
            if pod.uid in pods and pod.node:
                self._will_end(after, pod)
        n_running = sum(bool(pod.node) and pod.state != "nominated" for pod in live)
        if key in self._waiting and n_running >= min(before.min_member, len(live)):
            self._waiting.discard(key)
            self.starts.setdefault(key, self.now_s)

    def _will_end(self, workload: WorkloadView, pod: PodView) -> None:
        run_s = self.run_of(workload)
        if pod.is_terminating:
            heappush(self._ends, (self.now_s, workload.key, pod.uid, pod.started_at))
        elif run_s is not None:
            end_s = (pod.started_at or self.now_s) + run_s - self._saved_s.get(pod.uid, 0)
            heappush(self._ends, (max(end_s, self.now_s), workload.key, pod.uid, pod.started_at))

    def _end_until(self, now_s: int) -> None:
        while self._ends and self._ends[0][0] <= now_s:
            _, key, uid, started_at = heappop(self._ends)
            for pod in self._pods_of(key):
                if pod.uid == uid and pod.node and pod.started_at == started_at:
                    self._release(pod)
                    self._replace(key, {uid: None})

    def _pods_of(self, key: str) -> Iterable[PodView]:
        workload = self._workloads.get(key)
        return workload.pods if workload else ()

    def _stop(self, key: str, pod: PodView) -> None:
        """Release the pod's cards; it keeps its checkpointed work."""
        self._release(pod)
        every_s = pod.checkpoint_s
        if every_s is None:
            pools = (self.picture.snapshot.pools.get(p) for p in self._workloads[key].pools)
            every_s = next((pool.checkpoint_s for pool in pools if pool), 0)
        if every_s:
            ran_s = self.now_s - (pod.started_at or self.now_s)
            saved_s = self._saved_s.get(pod.uid, 0) + ran_s // every_s * every_s
            self._saved_s[pod.uid] = saved_s

    def _start(self, placement: Placement) -> PodView:
        pod, nodes = placement.pod, self.picture.snapshot.nodes
        if pod.state == "nominated":
            self._release(pod)
        nodes.hold(nodes.cards.ix[placement.node], pod.demand, placement.cards)
        return pod.started(placement.node, placement.cards, self.now_s)

    def _release(self, pod: PodView) -> None:
        nodes = self.picture.snapshot.nodes
        ix = nodes.ix_of(pod.node)
        if ix is not None:
            nodes.give_back(ix, pod.demand, pod.cards)
