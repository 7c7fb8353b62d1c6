"""The condition `ballast.dev/Placed` of pods that wait: why, and what would help.

A pod that starts within `SETTLE_S` never gets the condition, so work that finds its place at once
costs no write. Every other waiting pod gets it once, again when its reason has changed, and again
when only the figures in the message have; when it is bound it is told so. Which pods have it is
read from the pods, so a new leader writes nothing twice. The number of writes a second is bounded,
and namespaces take turns: a tenant with ten thousand waiting pods does not delay another's one.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, TypeVar

from msgspec import Struct

from extender.api import names
from extender.api.events import Upserted
from extender.api.reasons import Reason
from extender.cycle.reports.conditions import api_time
from extender.cycle.reports.wait_events import SETTLE_S, WAITING, told
from extender.cycle.writes import write_all
from extender.kube.client import Client
from extender.kube.errors import Conflict
from extender.kube.resources import PODS
from extender.policy.plan import Plan
from extender.state.cluster import ClusterState
from extender.state.model import PodView, WorkloadView
from extender.state.snapshot import Snapshot

#: If the reason of a workload changes to and fro, its pods are written at most this often.
CHANGE_S: Final = 60.0
#: How old the figures in a message may become.
RENEW_S: Final = 600.0
#: Pods written in one look, which is one second at least: 10,000 waiting pods take 200 s.
WRITES_PER_LOOK: Final = 50
#: The same while the cycle lets pods start, which the API server has to do first.
WRITES_WHILE_BUSY: Final = 10
#: Longest message: many programs read every pod.
MAX_MESSAGE: Final = 1024


T = TypeVar("T")


class _Waiter(Struct):
    """A workload that waits: since when, what its pods are told, and which of them are not yet."""

    since: float
    reason: Reason | None = None
    text: str = ""
    told_at: float = float("-inf")
    left: dict[str, PodView] = {}


#: A workload's key, the workload, and one of its pods that is to be told.
_Due = tuple[str, _Waiter, PodView]


class Note(Struct, frozen=True):
    """What one pod is told. Without a reason: that it has its place."""

    pod: PodView
    reason: Reason | None = None
    text: str = ""
    workload: str = ""


class PlacedConditions:
    """Writes the condition."""

    def __init__(self, client: Client, state: ClusterState) -> None:
        self._client = client
        self._state = state
        self._queue = PlacedQueue(state)

    async def write(
        self, snapshot: Snapshot, plan: Plan, changed: Iterable[str], now: float
    ) -> bool:
        """Tell as many pods as one look may; whether some are left over."""
        at_most = WRITES_WHILE_BUSY if plan.admissions else WRITES_PER_LOOK
        notes = self._queue.due(snapshot, plan, changed, now, at_most)
        writes = [self._write(note) for note in notes]
        all_well = await write_all(writes, what="condition of a pod")
        if not all_well:
            self._queue.put_back(notes)
        return not all_well or len(notes) == at_most

    async def _write(self, note: Note) -> None:
        pod = note.pod
        try:
            after = await self._client.strategic_patch(
                PODS,
                pod.name,
                placed_patch(note, is_first=not self._state.placed_reason(pod)),
                namespace=pod.namespace,
                subresource="status",
            )
        except Conflict:
            return  # another pod has the name now
        self._state.apply(Upserted(after))


class PlacedQueue:
    """Which pods are to be told what, and when."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._waiters: dict[str, _Waiter] = {}
        self._placed: dict[str, PodView] = {}

    def due(
        self, snapshot: Snapshot, plan: Plan, changed: Iterable[str], now: float, at_most: int
    ) -> list[Note]:
        """What is to be written at `now`; O(workloads that wait, and what has changed)."""
        looked_at = set(changed)
        for key in looked_at:
            self._note_placed(snapshot.workloads.get(key))
        self._waiters = {
            key: self._waiters.get(key) or _Waiter(now, left={})
            for key in plan.waits
            if key in snapshot.workloads
        }
        for key, waiter in self._waiters.items():
            # A cycle without time for a workload says nothing about it.
            if now - waiter.since >= SETTLE_S and key not in plan.cut:
                self._begin(waiter, snapshot.workloads[key], plan, now, is_new=key in looked_at)
        notes = [Note(self._placed.pop(uid)) for uid in list(self._placed)[:at_most]]
        pods = _in_turn(_by_namespace(self._waiters))
        for key, waiter, pod in list(islice(pods, at_most - len(notes))):
            del waiter.left[pod.uid]
            notes.append(Note(pod, waiter.reason, waiter.text, key))
        return notes

    def put_back(self, notes: Iterable[Note]) -> None:
        """Of what was given out, tell later what the pods do not say yet."""
        for note in notes:
            waiter = self._waiters.get(note.workload)
            if waiter is not None and self._state.placed_reason(note.pod) != note.reason:
                waiter.left[note.pod.uid] = note.pod

    def _note_placed(self, workload: WorkloadView | None) -> None:
        """Pods that were told why they wait, and are bound."""
        for pod in workload.pods if workload else ():
            if pod.state == "bound" and self._state.placed_reason(pod):
                self._placed[pod.uid] = pod

    def _begin(
        self, waiter: _Waiter, workload: WorkloadView, plan: Plan, now: float, *, is_new: bool
    ) -> None:
        """Say which pods are to be told, where something is due."""
        refused = plan.waits[workload.key]
        since_told = now - waiter.told_at
        is_other = refused.reason is not waiter.reason and since_told >= CHANGE_S
        is_old = since_told >= RENEW_S and not is_other
        if is_old:
            is_old = told(workload, refused) != waiter.text
        if is_other or is_old:
            waiter.reason, waiter.text = refused.reason, told(workload, refused)
            waiter.told_at = now
        if is_other or is_old or (is_new and waiter.reason is not None):
            waiter.left = {
                pod.uid: pod
                for pod in workload.pods
                if pod.state in WAITING
                and not pod.is_terminating
                and (
                    is_old
                    or pod.uid in waiter.left
                    or self._state.placed_reason(pod) != waiter.reason
                )
            }


def placed_patch(note: Note, *, is_first: bool) -> dict[str, Any]:
    """Strategic merge patch of a pod's status: this one condition, and no other's.

    The time of the last transition is left as it is while the status is the same.
    """
    condition = {
        "type": names.CONDITION_PLACED,
        "status": "False" if note.reason else "True",
        "reason": note.reason or Reason.SCHEDULED,
        "message": note.text[:MAX_MESSAGE] if note.reason else f"bound to node {note.pod.node}",
    }
    if is_first or not note.reason:
        condition["lastTransitionTime"] = api_time(datetime.now(UTC))
    return {"metadata": {"uid": note.pod.uid}, "status": {"conditions": [condition]}}


def _by_namespace(waiters: Mapping[str, _Waiter]) -> list[Iterator[_Due]]:
    """The pods that are to be told, of each namespace: one of each workload, then the others."""
    listed: dict[str, list[str]] = {}
    for key, waiter in waiters.items():
        if waiter.left:
            listed.setdefault(key.partition("/")[0], []).append(key)
    return [_in_turn(_pods_of(key, waiters[key]) for key in keys) for keys in listed.values()]


def _pods_of(key: str, waiter: _Waiter) -> Iterator[_Due]:
    return ((key, waiter, pod) for pod in waiter.left.values())


def _in_turn(listed: Iterable[Iterator[T]]) -> Iterator[T]:
    """One of each iterator, then the next of each that has more."""
    while True:
        going = []
        for each in listed:
            for item in each:
                yield item
                going.append(each)
                break
        if not going:
            return
        listed = going
