"""When the clusters are asked about a Workload, and asked again. Pure: times are given, in seconds.

A nominated cluster has `reserve_s` to admit the Workload. After that the nomination has lapsed: the
clusters are asked again, those that let one lapse are skipped while there is another, and each
further nomination lasts twice as long as the previous one, up to `MOST_RESERVE_TIMES` as long. If
no cluster can be nominated, they are asked again after `AGAIN_S`, and then after twice as long each
time, up to `MOST_AGAIN_S`.
"""

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from extender.api.versions import version_number
from extender.dispatch.kinds import Progress, Workload
from extender.view.answers import WantedWorkload

AGAIN_S: Final = 10.0
MOST_AGAIN_S: Final = 600.0
MOST_RESERVE_TIMES: Final = 8
#: From a nomination until its pods are in the worker's picture, questions about other Workloads
#: have to include it: until Kueue reports that the cluster has admitted it, and some seconds more
#: in which the pods are created; no longer than `SETTLE_S` in all.
SETTLE_S: Final = 60.0
ARRIVES_S: Final = 5.0
#: At most this many nominations are included, the newest first, with this many bytes of templates:
#: a worker reads questions of up to 1 MiB.
MOST_IN_FLIGHT: Final = 20
MOST_BYTES_IN_FLIGHT: Final = 2**19


@dataclass(slots=True)
class Turn:
    """The memory about one Workload, by its UID. `due` is when it is handled next; `version` is
    that of the nomination, since a watch may still deliver an older one."""

    uid: str
    due: float
    nominated: tuple[str, ...] = ()
    version: int = 0
    tried: frozenset[str] = frozenset()
    n_lapsed: int = 0
    n_refused: int = 0


@dataclass(slots=True)
class _Sent:
    """A nominated Workload that may not have arrived."""

    cluster: str
    until: float
    wanted: WantedWorkload
    is_admitted: bool = False


@dataclass(slots=True)
class Turns:
    """The turns of all waiting Workloads, and the nominations in flight."""

    reserve_s: float
    clock: Callable[[], float]
    _of: dict[str, Turn] = field(default_factory=dict)
    _sent: list[_Sent] = field(default_factory=list)

    def look(self, workload: Workload) -> Turn:
        """The turn of a waiting Workload; a new one if it is unknown.

        An existing nomination, as after a restart, has its full time from now on.
        """
        key, meta, now = workload.key, workload.metadata, self.clock()
        version = version_number(meta.resource_version)
        found, named = self._of.get(key), tuple(workload.status.nominated_cluster_names)
        if found is None or found.uid != meta.uid:
            found = self._of[key] = Turn(meta.uid, now, named)
            found.due = now + self.reserve_s if named else now
        elif found.nominated and not named and version > found.version:
            # Kueue evicted it and started over, so the clusters are asked again.
            found = self._of[key] = Turn(meta.uid, now)
        return found

    def keep(self, pending: Container[str], progress: Callable[[str, str], Progress]) -> None:
        """Drop the turns of Workloads that no longer wait, and nominations that have arrived."""
        self._of = {key: turn for key, turn in self._of.items() if key in pending}
        now, kept = self.clock(), []
        for sent in self._sent:
            how = progress(sent.wanted.namespace, sent.wanted.name)
            if how == "admitted" and not sent.is_admitted:
                sent.is_admitted, sent.until = True, min(sent.until, now + ARRIVES_S)
            if how != "gone" and sent.until > now:
                kept.append(sent)
        self._sent = kept

    def lapse(self, turn: Turn) -> None:
        """Before a Workload is handled again: no nominated cluster has admitted it in time."""
        if turn.nominated:
            turn.tried |= frozenset(turn.nominated)
            turn.n_lapsed += 1
            turn.nominated = ()

    def nominate(self, turn: Turn, clusters: Iterable[str], wanted: WantedWorkload) -> None:
        """Record that the clusters were nominated for `wanted` now."""
        now = self.clock()
        turn.nominated, turn.n_refused = tuple(clusters), 0
        turn.due = now + self.reserve_s * min(2**turn.n_lapsed, MOST_RESERVE_TIMES)
        kept = [each for each in self._sent if not _is_same(each, wanted)]
        new = [_Sent(each, now + SETTLE_S, wanted) for each in turn.nominated]
        self._sent = [*kept, *new]

    def refuse(self, turn: Turn) -> None:
        """Record that no cluster could be nominated."""
        turn.due = self.clock() + min(AGAIN_S * 2 ** min(turn.n_refused, 30), MOST_AGAIN_S)
        turn.n_refused += 1

    def in_flight(self, cluster: str, beside: WantedWorkload) -> list[WantedWorkload]:
        """Recent nominations of the cluster that may not have arrived, except the workload's own;
        the oldest first."""
        now = self.clock()
        there = (each for each in self._sent if each.cluster == cluster and each.until > now)
        found = [each.wanted for each in there if not _is_same(each, beside)][-MOST_IN_FLIGHT:]
        sizes = accumulate(_size(each) for each in reversed(found))
        n_kept = sum(size <= MOST_BYTES_IN_FLIGHT for size in sizes)
        return found[len(found) - n_kept :]

    def next_due(self) -> float | None:
        """When the next Workload is due."""
        return min((turn.due for turn in self._of.values()), default=None)


def _size(wanted: WantedWorkload) -> int:
    return sum(len(memoryview(each.template)) for each in wanted.pod_sets)


def _is_same(sent: _Sent, wanted: WantedWorkload) -> bool:
    return (sent.wanted.namespace, sent.wanted.name) == (wanted.namespace, wanted.name)
