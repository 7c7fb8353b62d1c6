"""Events of workloads that wait: one per owner and reason, renewed before the API server drops it.

The pods of one controller that wait for one reason share an event, so a Job of a hundred single
pods has one and not a hundred. An event stands on the controller and on one pod.
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

#: What starts sooner has no event and no condition about waiting.
SETTLE_S: Final = 5.0
#: kube-apiserver keeps events for an hour (`--event-ttl`); after this one is written anew.
RENEW_S: Final = 45 * 60.0
#: Seconds between two looks for events that are too old to be remembered.
_TIDY_S: Final = 60.0
#: States of a pod that has no place yet.
WAITING: Final = ("gated", "nominated")

#: An amount of memory; the first group is there where it is needed rather than had.
_MEMORY: Final = re.compile(r"(needs (?:[^;]*(?:and|with) )?)?\b([0-9]{1,15}) MiB\b")

#: The UID of the pods' controller (of the workload, its key), and why they wait.
_Key = tuple[str, Reason]


class _Crowd(Struct):
    """The workloads of one owner that wait for one reason: the first, and how many pods wait."""

    workload: WorkloadView
    pod: PodView
    refused: Refused
    n_pods: int = 0


class WaitNote(Struct, frozen=True):
    """An event: what it says on the pod, and on the pod's controller."""

    pod: PodView
    reason: Reason
    note: str
    owner_note: str


class WaitEvents:
    """Remembers which owner was told what and when, for `RENEW_S` at most."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._since: dict[str, float] = {}
        self._told: dict[_Key, float] = {}
        self._tidy_at = 0.0

    def due(self, snapshot: Snapshot, plan: Plan, now: float) -> list[WaitNote]:
        """What is to be recorded at `now`, a time of the loop; O(workloads that wait)."""
        notes = []
        since = self._since
        self._since = {key: since.get(key, now) for key in plan.waits}
        settled = (
            key
            for key, began in self._since.items()
            if now - began >= SETTLE_S and key not in plan.cut
        )
        for key, crowd in self._untold(snapshot, plan, settled, now).items():
            self._told[key] = now
            notes.append(_note(crowd))
        if now >= self._tidy_at:
            self._tidy_at = now + _TIDY_S
            self._told = {key: at for key, at in self._told.items() if now - at < RENEW_S}
        return notes

    def _untold(
        self, snapshot: Snapshot, plan: Plan, keys: Iterable[str], now: float
    ) -> dict[_Key, _Crowd]:
        """Those that an event is due for."""
        crowds: dict[_Key, _Crowd] = {}
        for key in keys:
            workload, refused = snapshot.workloads.get(key), plan.waits[key]
            waiting = [pod for pod in workload.pods if pod.state in WAITING] if workload else []
            if workload is None or not waiting:
                continue
            maker = self._state.maker_of(waiting[0])
            named = maker.uid if maker else key, refused.reason
            if now - self._told.get(named, float("-inf")) < RENEW_S:
                continue
            crowd = crowds.setdefault(named, _Crowd(workload, waiting[0], refused))
            crowd.n_pods += len(waiting)
        return crowds


def _note(crowd: _Crowd) -> WaitNote:
    said = told(crowd.workload, crowd.refused)
    pods = f"{crowd.n_pods} pods wait" if crowd.n_pods > 1 else "1 pod waits"
    note = said if crowd.n_pods == 1 else f"{pods}: {said}"
    return WaitNote(crowd.pod, crowd.refused.reason, note, f"{pods}: {said}")


def readable(detail: str) -> str:
    """The same with memory in GiB where that is a GiB at least: needs rounded up, the rest down."""
    return _MEMORY.sub(_in_gib, detail)


def _in_gib(found: re.Match[str]) -> str:
    mib, is_need = int(found[2]), bool(found[1])
    if mib < 1024:
        return found[0]
    tenths = -(-mib * 10 // 1024) if is_need else mib * 10 // 1024
    whole, part = divmod(tenths, 10)
    return f"{found[1] or ''}{whole}{f'.{part}' if part else ''} GiB"


def told(workload: WorkloadView, refused: Refused) -> str:
    """Why the workload waits and what would help, for users that look at one of its pods."""
    why = (refused.detail or SENTENCES[refused.reason]).removeprefix(f"{workload.key}: ")
    help_ = help_for(refused)
    return f"{readable(why)}. {help_}" if help_ else readable(why)
