"""The condition `ballast.dev/Placed` of pending pods: why they wait, and what would help.

A pod that starts within `SETTLE_S` never gets the condition, so immediate starts cost no write.
Every other pending pod gets it once, and again when its reason or only the figures in its message
have changed. Once bound, the pod gets the condition with status True. A new leader reads the
conditions from the pods, so it writes nothing twice. Writes per second are limited, and namespaces
take turns, so a tenant with ten thousand pending pods does not delay another tenant's single pod.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, TypeVar

import structlog
from msgspec import Struct

from extender.api import names
from extender.api.events import Upserted
from extender.api.reasons import Reason
from extender.api.units import api_time
from extender.cycle.reports.wait_events import SETTLE_S, WAITING, wait_message
from extender.cycle.writes import write_all
from extender.kube.client import Client
from extender.kube.errors import Conflict, KubeError, NotFound, RequestRefused
from extender.kube.resources import PODS
from extender.policy.plan import Plan
from extender.state.cluster import ClusterState
from extender.state.model import PodView, WorkloadView
from extender.state.snapshot import Snapshot

#: If a workload's reason alternates, its pods are written at most this often.
CHANGE_S: Final = 60.0
#: Age at which figures in a message are updated.
RENEW_S: Final = 600.0
#: Pods written per report, which is one second at least: 10,000 pending pods take 200 s.
WRITES_PER_LOOK: Final = 50
#: The same while the plan starts pods, which the API server should do first.
WRITES_WHILE_BUSY: Final = 10
#: Longest message: many programs read every pod.
MAX_MESSAGE: Final = 1024

log = structlog.get_logger(__name__)

T = TypeVar("T")


class _Waiter(Struct):
    """A pending workload: since when, its pods' message, and the pods that do not have it yet."""

    since: float
    reason: Reason | None = None
    text: str = ""
    written_at: float = float("-inf")
    left: dict[str, PodView] = {}


#: A workload's key, the workload, and one of its pods to write.
_Due = tuple[str, _Waiter, PodView]


class Note(Struct, frozen=True):
    """The condition of one pod; without a reason, that it is placed."""

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
        """Write as many pods as one report may; returns whether any are left."""
        at_most = WRITES_WHILE_BUSY if plan.admissions else WRITES_PER_LOOK
        notes = self._queue.due(snapshot, plan, changed, now, at_most)
        writes = [self._write(note) for note in notes]
        all_well = await write_all(writes, what="condition of a pod")
        return not all_well or len(notes) == at_most

    async def _write(self, note: Note) -> None:
        """Write one pod; it is queued again unless the API server has answered."""
        pod = note.pod
        try:
            after = await self._client.strategic_patch(
                PODS,
                pod.name,
                placed_patch(note, is_first=not self._state.placed_reason(pod)),
                namespace=pod.namespace,
                subresource="status",
            )
        except (Conflict, NotFound):
            return  # it is gone, or another pod has the name now
        except RequestRefused as error:
            # Until the workload or its reason changes, the answer would be the same.
            log.warning("condition refused", pod=pod.key, error=str(error))
            return
        except KubeError:
            self._queue.put_back(note)
            raise
        self._state.apply(Upserted(after))


class PlacedQueue:
    """Decides which pods get which condition, and when."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._waiters: dict[str, _Waiter] = {}
        self._placed: dict[str, PodView] = {}

    def due(
        self, snapshot: Snapshot, plan: Plan, changed: Iterable[str], now: float, at_most: int
    ) -> list[Note]:
        """The conditions to write at `now`; O(pending workloads, and what has changed)."""
        changed_keys = set(changed)
        for key in changed_keys:
            self._note_placed(snapshot.workloads.get(key))
        self._waiters = {
            key: self._waiters.get(key) or _Waiter(now, left={})
            for key in plan.waits
            if key in snapshot.workloads
        }
        for key, waiter in self._waiters.items():
            # A cycle that had no time for a workload gives no reason.
            if now - waiter.since >= SETTLE_S and key not in plan.cut:
                self._queue_pods(
                    waiter, snapshot.workloads[key], plan, now, is_new=key in changed_keys
                )
        notes = [Note(self._placed.pop(uid)) for uid in list(self._placed)[:at_most]]
        pods = _interleave(_by_namespace(self._waiters))
        for key, waiter, pod in list(islice(pods, at_most - len(notes))):
            del waiter.left[pod.uid]
            notes.append(Note(pod, waiter.reason, waiter.text, key))
        return notes

    def put_back(self, note: Note) -> None:
        """Queue the note again, because it could not be written."""
        waiter = self._waiters.get(note.workload)
        if note.reason is None:
            self._placed[note.pod.uid] = note.pod
        elif waiter is not None:
            waiter.left[note.pod.uid] = note.pod

    def _note_placed(self, workload: WorkloadView | None) -> None:
        """Queue bound pods with a condition that still says that they wait."""
        for pod in workload.pods if workload else ():
            if pod.state == "bound" and self._state.placed_reason(pod):
                self._placed[pod.uid] = pod

    def _queue_pods(
        self, waiter: _Waiter, workload: WorkloadView, plan: Plan, now: float, *, is_new: bool
    ) -> None:
        """Queue the workload's pods if a write is due."""
        refused = plan.waits[workload.key]
        since_written = now - waiter.written_at
        is_new_reason = refused.reason is not waiter.reason and since_written >= CHANGE_S
        is_old = since_written >= RENEW_S and not is_new_reason
        if is_old:
            is_old = wait_message(workload, refused) != waiter.text
        if is_new_reason or is_old:
            waiter.reason, waiter.text = refused.reason, wait_message(workload, refused)
            waiter.written_at = now
        if is_new_reason or is_old or (is_new and waiter.reason is not None):
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
    """Strategic merge patch of a pod's status: this condition and no other.

    The transition time stays while the status is the same.
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
    """The pods to write, by namespace: one of each workload in turn."""
    listed: dict[str, list[str]] = {}
    for key, waiter in waiters.items():
        if waiter.left:
            listed.setdefault(key.partition("/")[0], []).append(key)
    return [_interleave(_pods_of(key, waiters[key]) for key in keys) for keys in listed.values()]


def _pods_of(key: str, waiter: _Waiter) -> Iterator[_Due]:
    return ((key, waiter, pod) for pod in waiter.left.values())


def _interleave(listed: Iterable[Iterator[T]]) -> Iterator[T]:
    """The items of all iterators, one of each in turn."""
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
