"""Hands reservations for moved pods to their successors, or gives them up.

A move reserves cards by a nominated row under the UID of the pod that is evicted. Such a row can't
be bound, so it may be replaced or freed at any time; only the reservation is lost.
"""

from collections.abc import Iterable
from typing import Final

import structlog
from msgspec.structs import replace

from extender.api.kinds import Row
from extender.cycle.rows import successor_row
from extender.ledger.writer import RowChange
from extender.policy.workloads.gangs import is_satisfied, live_pods
from extender.state.cluster import ClusterState
from extender.state.model import PodView, WorkloadView
from extender.state.upkeep.upkeep import KeptPlace

#: How long a reservation is kept once the moved pod is gone. A ReplicaSet creates a new pod at
#: once; a Job waits 10 s after its first failed pod, and twice as long after each further one.
KEPT_S: Final = 60
#: How long in all: pods may take minutes to stop, and on a lost node they never do.
KEPT_IN_ALL_S: Final = 900

_Pair = tuple[KeptPlace, PodView]

log = structlog.get_logger(__name__)


class HandOver:
    """Matches reservations with successors. The row itself says since when it is reserved."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def changes(self, now_s: int) -> list[RowChange]:
        """Row changes: reservations given to successors, marked, or given up.

        A reservation is marked once its moved pod is gone, so that any leader knows since when.
        """
        expired: list[KeptPlace] = []
        kept: list[KeptPlace] = []
        for place in self._state.kept_places():
            (expired if _is_expired(place, now_s) else kept).append(place)
        ready = {
            workload.key: (workload, pairs)
            for workload, pairs in self._pairs(kept)
            if _may_start(workload, pairs)
        }
        taken = {place.row.uid for _, pairs in ready.values() for place, _ in pairs}
        return [
            *map(_give_up, expired),
            *(
                _mark(place, now_s)
                for place in kept
                if _needs_mark(place) and place.row.uid not in taken
            ),
            *(_change_of(workload, pairs, now_s) for workload, pairs in ready.values()),
        ]

    def _pairs(self, places: Iterable[KeptPlace]) -> list[tuple[WorkloadView, list[_Pair]]]:
        """By workload, reservations and the pod that may use each; every pod gets at most one.

        Not before the moved pod was evicted: it may stay after all, and until then a pending pod of
        its owner is not its successor.
        """
        pairs: dict[str, tuple[WorkloadView, list[_Pair]]] = {}
        taken: set[str] = set()
        for place in places:
            if self._state.is_assumed_terminating(place.row.uid):
                continue
            successors = self._state.successors(place.row)
            successor = next((pod for pod in successors if pod.uid not in taken), None)
            workload = self._state.workload_of(successor) if successor else None
            if successor is not None and workload is not None:
                taken.add(successor.uid)
                pairs.setdefault(workload.key, (workload, []))[1].append((place, successor))
        return list(pairs.values())


def _is_expired(place: KeptPlace, now_s: int) -> bool:
    """Whether the reservation has expired. A time that far in the future comes from a wrong
    clock, and counts as expired too."""
    if abs(now_s - place.row.reserved_at) > KEPT_IN_ALL_S:
        return True
    return place.move.gone_at > 0 and abs(now_s - place.move.gone_at) > KEPT_S


def _needs_mark(place: KeptPlace) -> bool:
    return place.is_gone and not place.move.gone_at


def _mark(place: KeptPlace, now_s: int) -> RowChange:
    """Note in the row when the moved pod was found gone; free the row if it can't be written."""
    row = replace(place.row, move=replace(place.move, gone_at=now_s))
    frees = {place.node: [place.row]}
    return RowChange(f"mark {place.row.key}", rows={place.node: [row]}, frees=frees)


def _give_up(place: KeptPlace) -> RowChange:
    log.info("reservation given up", pod=place.row.key, node=place.node)
    return RowChange(f"give up {place.row.key}", frees={place.node: [place.row]})


def _may_start(workload: WorkloadView, pairs: Iterable[_Pair]) -> bool:
    """Whether the successors and the placed pods together meet the workload's minimums."""
    return is_satisfied(workload, [*live_pods(workload), *(pod for _, pod in pairs)])


def _change_of(workload: WorkloadView, pairs: Iterable[_Pair], now_s: int) -> RowChange:
    rows: dict[str, list[Row]] = {}
    frees: dict[str, list[Row]] = {}
    for place, pod in pairs:
        rows.setdefault(place.node, []).append(successor_row(workload, pod, place.row, now_s))
        frees.setdefault(place.node, []).append(place.row)
        log.info("reservation handed over", pod=place.row.key, to=pod.key, node=place.node)
    return RowChange(f"hand over to {workload.key}", rows=rows, frees=frees)
