"""Repairs before each decision: rows without pods, and plans that were carried out in part.

docs/ledger.md has every rule for freeing a row; only this module executes them. All repairs are
idempotent, so the next leader completes what a crash between any two writes left.
"""

import asyncio
import itertools
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence, Set
from typing import Final

import structlog
from msgspec import Struct, field

from extender.api.kinds import Row
from extender.api.reasons import SENTENCES, Reason
from extender.cycle import metrics
from extender.cycle.pod_events import pod_reference
from extender.cycle.pods.writer import PodWriter, Release
from extender.cycle.recovery.hold_back import hold_back
from extender.cycle.recovery.scheduler_watch import SchedulerWatch
from extender.cycle.rows import placed_row
from extender.kube.errors import WebhookAway
from extender.kube.recorder import EventRecorder
from extender.policy.plan import Placement, Plan
from extender.state.cluster import ClusterState
from extender.state.model import PodView
from extender.state.refusals import deny
from extender.state.upkeep.upkeep import StrayRow

#: A row may be newer than our view of its pod: wait this long before a live read.
ABSENT_AFTER_S: Final = 2.0
#: Live reads per pass.
_READS_AT_ONCE: Final = 32
#: A row is marked `bound` with another write of its node, or after this long with its own.
MARK_AFTER_S: Final = 300.0
#: Nodes written per pass only to mark such rows.
_MARKS_AT_ONCE: Final = 32
#: Seconds between two looks at released pods that are not bound, and at rows that are not marked.
_LOOK_PERIOD_S: Final = 2.0

log = structlog.get_logger(__name__)


class Repairs(Struct):
    """Row changes for the ledger, by node, and pods to release, by project.

    `overdue` are the nodes that must be written only to mark rows `bound`.
    """

    frees: dict[str, list[Row]] = field(default_factory=dict)
    overdue: Sequence[str] = ()
    restores: dict[str, list[Row]] = field(default_factory=dict)
    releases: list[tuple[str, list[Release]]] = field(default_factory=list)

    def free(self, node: str, row: Row) -> None:
        """Add a row to free."""
        self.frees.setdefault(node, []).append(row)


class Recovery:
    """Finds what to repair, patches pods where a fence is needed, and returns what to write."""

    def __init__(
        self,
        state: ClusterState,
        writer: PodWriter,
        recorder: EventRecorder,
        bind_timeout_s: float,
        in_release: Set[str],
    ) -> None:
        """`in_release`: UIDs of pods with a release queued or in flight, a live view."""
        self._state = state
        self._writer = writer
        self._recorder = recorder
        self._in_release = in_release
        self._watch = SchedulerWatch(state, bind_timeout_s)
        self._back_off_s = max(1, round(bind_timeout_s))
        #: By kind and key.
        self._first_seen: defaultdict[str, dict[str, float]] = defaultdict(dict)
        self._looked_at = float("-inf")
        self._overdue: Sequence[str] = ()

    def hold_back(self, plan: Plan) -> Plan:
        """The part of the plan that may be carried out in kube-scheduler's present state."""
        now = asyncio.get_running_loop().time()
        is_away = self._watch.is_away(now)
        metrics.SCHEDULER_AWAY.set(is_away)
        if not is_away or not (plan.admissions or plan.evictions or plan.moves):
            return plan
        return hold_back(plan, int(self._watch.may_probe(now)))

    async def plan(self) -> Repairs:
        """One pass over everything that needs repair; costs what there is to repair."""
        repairs = Repairs()
        now = asyncio.get_running_loop().time()
        await self._free_strays(repairs, now)
        self._restore_lost(repairs)
        denied = await self._give_up_denied(repairs)
        await self._finish_or_take_back(repairs, denied)
        await self._forget_lost_plans(now)
        if now - self._looked_at >= _LOOK_PERIOD_S:
            self._looked_at = now
            await self._take_back_overdue(repairs, now)
            self._overdue = self._overdue_marks(now)
        repairs.overdue = self._overdue
        return repairs

    # -- rows that are no longer needed ------------------------------------------------------

    async def _free_strays(self, repairs: Repairs, now: float) -> None:
        strays = self._state.rows_to_free()
        unsure: list[StrayRow] = []
        for stray in strays:
            if stray.is_confirmed:
                repairs.free(stray.node, stray.row)
            elif self._is_old("row", f"{stray.node}/{stray.row.uid}", now):
                unsure.append(stray)
        self._forget("row", {f"{stray.node}/{stray.row.uid}" for stray in strays})
        async with asyncio.TaskGroup() as tasks:
            for stray in unsure[:_READS_AT_ONCE]:
                tasks.create_task(self._free_if_certain(stray, repairs, now))

    async def _free_if_certain(self, stray: StrayRow, repairs: Repairs, now: float) -> None:
        row = stray.row
        if stray.cause == "superseded":
            # The pod's plan, if any, names its newer row, and stays.
            pod = self._state.pod(row.uid)
            is_certain = pod is not None and await self._writer.revoke(
                pod, stray.node, row, keeps_plan=True
            )
        else:
            is_certain = await self._writer.is_absent(row.namespace, row.name, row.uid)
        if is_certain:
            repairs.free(stray.node, row)
        else:
            # Other rows are read before this one is tried again.
            self._first_seen["row"][f"{stray.node}/{row.uid}"] = now

    def _overdue_marks(self, now: float) -> list[str]:
        """Nodes that have had rows to mark `bound` for too long."""
        nodes = self._state.rows_to_mark_bound().keys()
        self._forget("mark", nodes)
        overdue = [node for node in nodes if self._is_old("mark", node, now, MARK_AFTER_S)]
        return overdue[:_MARKS_AT_ONCE]

    def _restore_lost(self, repairs: Repairs) -> None:
        """Restore deleted rows of bound pods from their Bindings, as new rows. If the node has no
        GpuNode, they are restored once it has one."""
        lost_rows = [row for row in self._state.lost_rows() if self._state.gpu_node(row.pod.node)]
        if not lost_rows:
            return
        workload_of = {
            pod.uid: workload
            for workload in self._state.workloads().values()
            for pod in workload.pods
        }
        for lost in lost_rows:
            workload = workload_of.get(lost.pod.uid)
            if workload is not None:
                placement = Placement(lost.pod, lost.pod.node, lost.cards)
                row = placed_row(workload, placement, state="bound", reserved_at=int(time.time()))
                repairs.restores.setdefault(lost.pod.node, []).append(row)

    # -- plans carried out in part -----------------------------------------------------------

    async def _give_up_denied(self, repairs: Repairs) -> set[str]:
        """Free the rows of pods that the API server refuses to release; returns the pods' UIDs.

        Reports each refused patch; a pod that is already released keeps its row. The wait grows
        with each refusal, but not while a webhook is away: that says nothing about the pod.
        """
        denied, self._writer.denied = self._writer.denied, {}
        now_s = int(time.time())
        async with asyncio.TaskGroup() as tasks:
            for uid, error in denied.items():
                pod = self._state.pod(uid)
                row = self._state.row_of(pod) if pod is not None else None
                if pod is None or row is None or pod.is_released or pod.state != "reserved":
                    continue
                before = None if isinstance(error, WebhookAway) else pod.denial
                denial = deny(before, error.message, now_s, self._back_off_s)
                self._state.set_denial(pod, denial)
                about = pod_reference(pod)
                self._recorder.record(about, Reason.RELEASE_REFUSED, error.message, "Warning")
                tasks.create_task(self._give_up(pod, row, repairs))
        return set(denied)

    async def _give_up(self, pod: PodView, row: Row, repairs: Repairs) -> None:
        if await self._writer.give_up(pod, pod.node, row):
            repairs.free(pod.node, row)

    async def _finish_or_take_back(self, repairs: Repairs, denied: set[str]) -> None:
        for unfinished in self._state.unfinished():
            if unfinished.is_partial:
                await self._take_back(unfinished.workload.pods, repairs)
            else:
                releases = [
                    Release(pod, pod.node, pod.epoch)
                    for pod in unfinished.held
                    # The most selective test first: in a burst, thousands wait in every cycle.
                    if pod.uid not in self._in_release
                    and not pod.is_terminating
                    and pod.uid not in denied
                ]
                if releases:
                    repairs.releases.append((unfinished.workload.project, releases))

    async def _take_back(self, pods: Iterable[PodView], repairs: Repairs) -> None:
        for pod in pods:
            row = self._state.row_of(pod)
            if row is None or pod.state == "bound":
                continue
            if row.state == "nominated" or await self._writer.revoke(pod, pod.node, row):
                repairs.free(pod.node, row)

    async def _forget_lost_plans(self, now: float) -> None:
        """Remove the plan of released pods without a row, so that they are planned again."""
        pods = self._state.released_without_row()
        due = [pod for pod in pods if self._is_old("plan", pod.uid, now)]
        self._forget("plan", {pod.uid for pod in pods})
        async with asyncio.TaskGroup() as tasks:
            for pod in due:
                # If the patch fails, it is tried again after a while.
                self._first_seen["plan"][pod.uid] = now
                tasks.create_task(self._writer.forget_plan(pod))

    # -- released pods that are not bound ----------------------------------------------------

    async def _take_back_overdue(self, repairs: Repairs, now: float) -> None:
        """Take back the rows of released pods that kube-scheduler did not bind in time, and of
        released pods on a deleted Node. The pods are planned again. A deleted Node does not count
        as a refusal and needs no time-out.

        All members of a gang lose their rows together: if one needs another node, all may.
        """
        waiting = {
            workload.key: released
            for workload in self._state.workloads().values()
            if (released := [pod for pod in workload.pods if _is_released(pod)])
        }
        self._watch.look(itertools.chain.from_iterable(waiting.values()), now)
        gone = self._state.differences().without_node
        async with asyncio.TaskGroup() as tasks:
            for released in waiting.values():
                lost = [pod for pod in released if pod.node in gone]
                there = [pod for pod in released if pod.node not in gone]
                overdue = [pod for pod in there if self._watch.is_overdue(pod, now)]
                lost += overdue
                self._tell_refused(overdue)
                refused = {pod.uid for pod in overdue}
                for pod in released if lost and self._is_gang(lost[0]) else lost:
                    taking = self._take_back_row(pod, repairs, is_refused=pod.uid in refused)
                    tasks.create_task(taking)

    def _is_gang(self, pod: PodView) -> bool:
        workload = self._state.workload_of(pod)
        return workload is not None and workload.is_group and workload.min_member > 1

    async def _take_back_row(self, pod: PodView, repairs: Repairs, *, is_refused: bool) -> None:
        row = self._state.row_of(pod)
        if row is None:
            return
        refusals = None
        if is_refused:
            now_s = int(time.time())
            refusals = pod.refusals.after(pod.node, now_s, self._back_off_s, pod.answer)
        if await self._writer.revoke(pod, pod.node, row, refusals=refusals):
            repairs.free(pod.node, row)

    def _tell_refused(self, pods: Iterable[PodView]) -> None:
        for pod in pods:
            why = pod.answer or SENTENCES[Reason.PLACEMENT_REFUSED]
            note = f"not bound on {pod.node}, planned again: {why}"
            self._recorder.record(pod_reference(pod), Reason.PLACEMENT_REFUSED, note, "Warning")
            log.warning("pod not bound in time", pod=pod.key, node=pod.node, epoch=pod.epoch)

    # -- helpers -----------------------------------------------------------------------------

    def _is_old(self, kind: str, key: str, now: float, after_s: float = ABSENT_AFTER_S) -> bool:
        """Whether this was first seen at least `after_s` ago; the first call records the time."""
        return now - self._first_seen[kind].setdefault(key, now) >= after_s

    def _forget(self, kind: str, still: Collection[str]) -> None:
        seen = self._first_seen[kind]
        for key in [key for key in seen if key not in still]:
            del seen[key]


def _is_released(pod: PodView) -> bool:
    """Whether kube-scheduler could bind the pod now."""
    is_free = pod.is_released and not pod.other_gates and not pod.is_terminating
    return pod.state == "reserved" and is_free
