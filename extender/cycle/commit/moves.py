"""Places that are kept for moved pods are handed to their successors, or given up.

A move keeps its place by a nominated row under the UID of the pod that leaves. Such a row can't be
bound, so it may be replaced or freed at any time; all that is lost by that is the place.
"""

import asyncio
import time
from collections.abc import Iterable
from typing import Final

import structlog

from extender.api.kinds import Row
from extender.cycle.rows import successor_row
from extender.ledger.writer import RowChange
from extender.state.cluster import ClusterState
from extender.state.model import PodView, WorkloadView
from extender.state.trees import is_below
from extender.state.upkeep.upkeep import KeptPlace

#: How long a place is kept once its pod is gone. A ReplicaSet makes another at once; a Job waits
#: 10 s after the first pod that failed, and every further time twice as long.
KEPT_S: Final = 60.0
#: How long in all: pods may take minutes to stop, and on a node that is lost they never do.
KEPT_IN_ALL_S: Final = 900.0

_Pair = tuple[KeptPlace, PodView]

log = structlog.get_logger(__name__)


class HandOver:
    """Matches kept places with successors. Remembers only since when places are kept."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._seen: dict[tuple[str, str, bool], float] = {}

    def changes(self) -> list[RowChange]:
        """What the ledger has to write: places for their successors, and places given up."""
        kept = self._state.kept_places()
        self._note(kept, asyncio.get_running_loop().time())
        changes: list[RowChange] = []
        pairs: dict[str, tuple[WorkloadView, list[_Pair]]] = {}
        taken: set[str] = set()
        for place in kept:
            if self._is_late(place):
                log.info("kept place given up", pod=_name(place), node=place.node)
                changes.append(
                    RowChange(f"give up {_name(place)}", frees={place.node: [place.row]})
                )
                continue
            heirs = self._state.successors(place.row)
            heir = next((pod for pod in heirs if pod.uid not in taken), None)
            workload = self._state.workload_of(heir) if heir else None
            if heir is not None and workload is not None:
                taken.add(heir.uid)
                pairs.setdefault(workload.key, (workload, []))[1].append((place, heir))
        return changes + [
            _change_of(workload, found)
            for workload, found in pairs.values()
            if _may_start(workload, found)
        ]

    def _note(self, kept: Iterable[KeptPlace], now: float) -> None:
        keys = {(place.node, place.row.uid, is_gone) for place in kept for is_gone in _told(place)}
        self._seen = {key: self._seen.get(key, now) for key in keys}

    def _is_late(self, place: KeptPlace) -> bool:
        now, key = asyncio.get_running_loop().time(), (place.node, place.row.uid)
        if now - self._seen[*key, False] > KEPT_IN_ALL_S:
            return True
        return place.is_gone and now - self._seen[*key, True] > KEPT_S


def _told(place: KeptPlace) -> tuple[bool, ...]:
    return (False, True) if place.is_gone else (False,)


def _may_start(workload: WorkloadView, pairs: Iterable[_Pair]) -> bool:
    """Whether the successors, with what has a place, reach the minimums: else more must come."""
    groups = [
        pod.group
        for pod in workload.pods
        if pod.state in ("nominated", "reserved", "bound") and not pod.is_terminating
    ]
    groups += [pod.group for _, pod in pairs]
    return not is_below(workload.tree, workload.min_member, groups)


def _change_of(workload: WorkloadView, pairs: Iterable[_Pair]) -> RowChange:
    rows: dict[str, list[Row]] = {}
    frees: dict[str, list[Row]] = {}
    now_s = int(time.time())
    for place, pod in pairs:
        rows.setdefault(place.node, []).append(successor_row(workload, pod, place.row, now_s))
        frees.setdefault(place.node, []).append(place.row)
        log.info("kept place handed over", pod=_name(place), to=pod.key, node=place.node)
    return RowChange(f"hand over to {workload.key}", rows=rows, frees=frees)


def _name(place: KeptPlace) -> str:
    return f"{place.row.namespace}/{place.row.name}"
