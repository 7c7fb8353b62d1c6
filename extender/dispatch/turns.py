"""When a Workload is asked about, and asked about again. Pure: the clock is given, in seconds.

A nominated cluster has `reserve_s` to admit the Workload. After that the nomination has lapsed: the
clusters are asked again, those that let one lapse are passed over while there is another, and each
further nomination holds twice as long as the one before, up to `MOST_RESERVE_TIMES` as long. Where
no cluster can be nominated, they are asked again after `AGAIN_S`, and then after twice as long each
time, up to `MOST_AGAIN_S`.
"""

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from extender.api.objects import ObjectMeta
from extender.dispatch.kinds import Progress, Workload
from extender.view.answers import WantedWorkload

AGAIN_S: Final = 10.0
MOST_AGAIN_S: Final = 600.0
MOST_RESERVE_TIMES: Final = 8
#: From a nomination until its pods are in the worker's picture, a question about other work has to
#: count them itself: until Kueue says that the cluster has admitted it, and for some seconds more
#: in which the pods are made; no longer than `SETTLE_S` in all.
SETTLE_S: Final = 60.0
ARRIVES_S: Final = 5.0
#: So many nominations are counted at most, the newest first, with templates of so many bytes: a
#: worker reads questions of up to 1 MiB.
MOST_IN_FLIGHT: Final = 20
MOST_BYTES_IN_FLIGHT: Final = 2**19


@dataclass(slots=True)
class Turn:
    """What is remembered of one Workload, by its UID. `due` is when it is asked about next;
    `version` is that of the nomination, since a watch may still tell what was before."""

    uid: str
    due: float
    nominated: tuple[str, ...] = ()
    version: int = 0
    tried: frozenset[str] = frozenset()
    n_lapsed: int = 0
    n_refused: int = 0


@dataclass(slots=True)
class _Sent:
    """Work that was nominated and may not have arrived."""

    cluster: str
    until: float
    wanted: WantedWorkload
    is_admitted: bool = False


@dataclass(slots=True)
class Turns:
    """The turns of all Workloads that wait, and what is under way to clusters."""

    reserve_s: float
    clock: Callable[[], float]
    _of: dict[str, Turn] = field(default_factory=dict)
    _sent: list[_Sent] = field(default_factory=list)

    def look(self, workload: Workload) -> Turn:
        """The turn of a Workload that waits; a new one where it was not known.

        A nomination that is found, as after a restart, has its whole time from now on.
        """
        key, meta, now = workload.key, workload.metadata, self.clock()
        found, named = self._of.get(key), tuple(workload.status.nominated_cluster_names)
        if found is None or found.uid != meta.uid:
            found = self._of[key] = Turn(meta.uid, now, named)
            found.due = now + self.reserve_s if named else now
        elif found.nominated and not named and version_of(meta) > found.version:
            # Kueue evicted it and began anew, so it is asked about anew.
            found = self._of[key] = Turn(meta.uid, now)
        return found

    def keep(self, pending: Container[str], progress: Callable[[str, str], Progress]) -> None:
        """Forget turns of all others, which wait no longer, and what is under way no more."""
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
        """Before it is asked about again: no nominated cluster has admitted it in time."""
        if turn.nominated:
            turn.tried |= frozenset(turn.nominated)
            turn.n_lapsed += 1
            turn.nominated = ()

    def nominate(self, turn: Turn, clusters: Iterable[str], wanted: WantedWorkload) -> None:
        """The clusters were nominated for `wanted`, now."""
        now = self.clock()
        turn.nominated, turn.n_refused = tuple(clusters), 0
        turn.due = now + self.reserve_s * min(2**turn.n_lapsed, MOST_RESERVE_TIMES)
        kept = [each for each in self._sent if not _is_same(each, wanted)]
        new = [_Sent(each, now + SETTLE_S, wanted) for each in turn.nominated]
        self._sent = [*kept, *new]

    def refuse(self, turn: Turn) -> None:
        """No cluster could be nominated."""
        turn.due = self.clock() + min(AGAIN_S * 2 ** min(turn.n_refused, 30), MOST_AGAIN_S)
        turn.n_refused += 1

    def in_flight(self, cluster: str, beside: WantedWorkload) -> list[WantedWorkload]:
        """What was nominated there so lately that it may not have arrived, the oldest first; not
        the workload itself."""
        now = self.clock()
        there = (each for each in self._sent if each.cluster == cluster and each.until > now)
        found = [each.wanted for each in there if not _is_same(each, beside)][-MOST_IN_FLIGHT:]
        sizes = accumulate(_size(each) for each in reversed(found))
        n_kept = sum(size <= MOST_BYTES_IN_FLIGHT for size in sizes)
        return found[len(found) - n_kept :]

    def next_due(self) -> float | None:
        """When the next Workload is due."""
        return min((turn.due for turn in self._of.values()), default=None)


def version_of(meta: ObjectMeta) -> int:
    """The object's version as a number, by which versions are put in order; 0 for none."""
    return int(meta.resource_version) if meta.resource_version.isdecimal() else 0


def _size(wanted: WantedWorkload) -> int:
    return sum(len(memoryview(each.template)) for each in wanted.pod_sets)


def _is_same(sent: _Sent, wanted: WantedWorkload) -> bool:
    return (sent.wanted.namespace, sent.wanted.name) == (wanted.namespace, wanted.name)
