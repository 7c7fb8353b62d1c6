"""Events of pending workloads: one per owner and reason, renewed before the API server drops it.

A pod without an owner that is created again under its name, as a notebook is, gets an event again.

Pods of one controller with the same wait reason share an event, so a Job of a hundred single pods
has one and not a hundred. The event is recorded on the controller and on one pod.
"""

import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from extender.api.reasons import SENTENCES, Reason, Refused
from extender.policy.placement.explain import help_for
from extender.policy.plan import Plan
from extender.state.cluster import ClusterState
from extender.state.model import PodView, WorkloadView
from extender.state.snapshot import Snapshot

#: A workload that starts sooner gets no event and no condition about waiting.
SETTLE_S: Final = 5.0
#: An event is written anew after this; kube-apiserver keeps events for an hour (`--event-ttl`).
RENEW_S: Final = 45 * 60.0
#: Seconds between two removals of expired entries.
_TIDY_S: Final = 60.0
#: States of a pod that is pending.
WAITING: Final = ("gated", "nominated")

#: An amount of memory; the first group is set if the amount is needed and not free.
_MEMORY: Final = re.compile(r"(needs (?:[^;]*(?:and|with) )?)?\b([0-9]{1,15}) MiB\b")

#: The UID of the pods' controller (or else of the pod), and the wait reason.
_Key = tuple[str, Reason]


class _WaitGroup(Struct):
    """Workloads of one owner with one wait reason: the first of them, and how many pods wait."""

    workload: WorkloadView
    pod: PodView
    refused: Refused
    n_pods: int = 0


class WaitNote(Struct, frozen=True):
    """An event: the text on the pod, and on the pod's controller."""

    pod: PodView
    reason: Reason
    note: str
    owner_note: str


class WaitEvents:
    """Remembers for `RENEW_S` which owner, or pod without one, got an event for which reason."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._since: dict[str, float] = {}
        self._recorded_at: dict[_Key, float] = {}
        self._tidy_at = 0.0

    def due(self, snapshot: Snapshot, plan: Plan, now: float) -> list[WaitNote]:
        """The events to record at `now`, a time of the loop; O(pending workloads)."""
        notes = []
        since = self._since
        self._since = {key: since.get(key, now) for key in plan.waits}
        settled = (
            key
            for key, began in self._since.items()
            if now - began >= SETTLE_S and key not in plan.cut
        )
        for key, group in self._due_groups(snapshot, plan, settled, now).items():
            self._recorded_at[key] = now
            notes.append(_note(group))
        if now >= self._tidy_at:
            self._tidy_at = now + _TIDY_S
            self._recorded_at = {
                key: at for key, at in self._recorded_at.items() if now - at < RENEW_S
            }
        return notes

    def _due_groups(
        self, snapshot: Snapshot, plan: Plan, keys: Iterable[str], now: float
    ) -> dict[_Key, _WaitGroup]:
        """The workloads for which an event is due, by owner and reason."""
        groups: dict[_Key, _WaitGroup] = {}
        for key in keys:
            workload, refused = snapshot.workloads.get(key), plan.waits[key]
            waiting = [pod for pod in workload.pods if pod.state in WAITING] if workload else []
            if workload is None or not waiting:
                continue
            maker = self._state.maker_of(waiting[0])
            named = maker.uid if maker else waiting[0].uid, refused.reason
            if now - self._recorded_at.get(named, float("-inf")) < RENEW_S:
                continue
            group = groups.setdefault(named, _WaitGroup(workload, waiting[0], refused))
            group.n_pods += len(waiting)
        return groups


def _note(group: _WaitGroup) -> WaitNote:
    said = wait_message(group.workload, group.refused)
    pods = f"{group.n_pods} pods wait" if group.n_pods > 1 else "1 pod waits"
    note = said if group.n_pods == 1 else f"{pods}: {said}"
    return WaitNote(group.pod, group.refused.reason, note, f"{pods}: {said}")


def readable(detail: str) -> str:
    """`detail` with MiB shown as GiB from 1 GiB on; needs are rounded up, other amounts down."""
    return _MEMORY.sub(_in_gib, detail)


def _in_gib(found: re.Match[str]) -> str:
    mib, is_need = int(found[2]), bool(found[1])
    if mib < 1024:
        return found[0]
    tenths = -(-mib * 10 // 1024) if is_need else mib * 10 // 1024
    whole, part = divmod(tenths, 10)
    return f"{found[1] or ''}{whole}{f'.{part}' if part else ''} GiB"


def wait_message(workload: WorkloadView, refused: Refused) -> str:
    """Why the workload is pending and what would help, as written to each of its pods."""
    why = (refused.detail or SENTENCES[refused.reason]).removeprefix(f"{workload.key}: ")
    help_ = help_for(refused)
    return f"{readable(why)}. {help_}" if help_ else readable(why)
