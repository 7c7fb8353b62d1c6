"""Places that are kept for moved pods are handed to their successors, or given up.

A move keeps its place by a nominated row under the UID of the pod that leaves. Such a row can't be
bound, so it may be replaced or freed at any time; all that is lost by that is the place.
"""

from collections.abc import Iterable
from typing import Final

import structlog
from msgspec.structs import replace

from extender.api.kinds import Row
from extender.cycle.rows import successor_row
from extender.ledger.writer import RowChange
from extender.state.cluster import ClusterState
from extender.state.model import PodView, WorkloadView
from extender.state.trees import is_below
from extender.state.upkeep.upkeep import KeptPlace

#: How long a place is kept once its pod is gone. A ReplicaSet makes another at once; a Job waits
#: 10 s after the first pod that failed, and every further time twice as long.
KEPT_S: Final = 60
#: How long in all: pods may take minutes to stop, and on a node that is lost they never do.
KEPT_IN_ALL_S: Final = 900

_Pair = tuple[KeptPlace, PodView]

log = structlog.get_logger(__name__)


class HandOver:
    """Matches kept places with successors. Since when a place is kept stands in its row."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def changes(self, now_s: int) -> list[RowChange]:
        """What the ledger has to write: places for their successors, and places given up.

        A place that stays is marked once its pod is gone, so that any leader knows since when.
        """
        late: list[KeptPlace] = []
        kept: list[KeptPlace] = []
        for place in self._state.kept_places():
            (late if _is_late(place, now_s) else kept).append(place)
        ready = {
            workload.key: (workload, pairs)
            for workload, pairs in self._pairs(kept)
            if _may_start(workload, pairs)
        }
        taken = {place.row.uid for _, pairs in ready.values() for place, _ in pairs}
        return [
            *map(_give_up, late),
            *(
                _mark(place, now_s)
                for place in kept
                if _is_news(place) and place.row.uid not in taken
            ),
            *(_change_of(workload, pairs, now_s) for workload, pairs in ready.values()),
        ]

    def _pairs(self, places: Iterable[KeptPlace]) -> list[tuple[WorkloadView, list[_Pair]]]:
        """By workload, places with the pod that may take each; a pod takes one.

        None is taken before the pod that is moved was told to leave: it may stay after all, and
        a pod of its owner that has waited all along is not its successor.
        """
        pairs: dict[str, tuple[WorkloadView, list[_Pair]]] = {}
        taken: set[str] = set()
        for place in places:
            if self._state.is_expected_to_leave(place.row.uid):
                continue
            heirs = self._state.successors(place.row)
            heir = next((pod for pod in heirs if pod.uid not in taken), None)
            workload = self._state.workload_of(heir) if heir else None
            if heir is not None and workload is not None:
                taken.add(heir.uid)
                pairs.setdefault(workload.key, (workload, []))[1].append((place, heir))
        return list(pairs.values())


def _is_late(place: KeptPlace, now_s: int) -> bool:
    """Whether the place has been kept for long enough. Times that are as far in the future are of a
    clock that was wrong."""
    if abs(now_s - place.row.reserved_at) > KEPT_IN_ALL_S:
        return True
    return place.move.gone_at > 0 and abs(now_s - place.move.gone_at) > KEPT_S


def _is_news(place: KeptPlace) -> bool:
    return place.is_gone and not place.move.gone_at


def _mark(place: KeptPlace, now_s: int) -> RowChange:
    """The place with a note since when its pod is gone; given up where no row may be any more."""
    row = replace(place.row, move=replace(place.move, gone_at=now_s))
    frees = {place.node: [place.row]}
    return RowChange(f"mark {_name(place)}", rows={place.node: [row]}, frees=frees)


def _give_up(place: KeptPlace) -> RowChange:
    log.info("kept place given up", pod=_name(place), node=place.node)
    return RowChange(f"give up {_name(place)}", frees={place.node: [place.row]})


def _may_start(workload: WorkloadView, pairs: Iterable[_Pair]) -> bool:
    """Whether the successors, with what has a place, reach the minimums: else more must come."""
    groups = [
        pod.group
        for pod in workload.pods
        if pod.state in ("nominated", "reserved", "bound") and not pod.is_terminating
    ]
    groups += [pod.group for _, pod in pairs]
    return not is_below(workload.tree, workload.min_member, groups)


def _change_of(workload: WorkloadView, pairs: Iterable[_Pair], now_s: int) -> RowChange:
    rows: dict[str, list[Row]] = {}
    frees: dict[str, list[Row]] = {}
    for place, pod in pairs:
        rows.setdefault(place.node, []).append(successor_row(workload, pod, place.row, now_s))
        frees.setdefault(place.node, []).append(place.row)
        log.info("kept place handed over", pod=_name(place), to=pod.key, node=place.node)
    return RowChange(f"hand over to {workload.key}", rows=rows, frees=frees)


def _name(place: KeptPlace) -> str:
    return f"{place.row.namespace}/{place.row.name}"
