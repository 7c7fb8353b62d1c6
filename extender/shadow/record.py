"""Accumulates looks at the cluster into the report.

Each look is one decision on the actual cluster. Consequences of earlier decisions are not carried
over, because it is unknown when the workloads would have ended.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from extender.api.units import format_gpus, format_tenths
from extender.policy.plan import Eviction, Move
from extender.shadow.answers import (
    Assumption,
    Outcome,
    ShadowLook,
    ShadowProject,
    ShadowReport,
    ShadowStop,
    ShadowWork,
)
from extender.state.model import GPU, UNLIMITED, PodView, WorkloadView
from extender.view.line import as_time
from extender.view.picture import Picture, is_limited, leaving, waits
from extender.view.simulate import fates_of, format_hours, lost_milli_seconds

#: Limit on lines of the report: a week of a busy cluster has more, and they are counted.
MOST_LINES: Final = 5_000
#: Limit on points of the curve; beyond it, every second one is dropped.
_MOST_POINTS: Final = 400


@dataclass(slots=True)
class _Sums:
    """Milli-GPU of a project, summed over the looks."""

    owed: int = 0
    held: int = 0
    given: int = 0
    taken: int = 0
    waiting: int = 0


@dataclass(slots=True)
class _Work:
    """A pending workload; times in unix seconds, 0 if not reached."""

    entry: ShadowWork
    since_s: int
    ballast_s: int = 0
    end_s: int = 0


@dataclass(slots=True)
class Record:
    """Every look so far."""

    is_by_namespace: bool = False
    _looks: int = 0
    _looks_with_waiting: int = 0
    _idle: int = 0
    _ballast_idle: int = 0
    _sums: dict[str, _Sums] = field(default_factory=dict)
    #: The last wait of each workload; then all waits in order.
    _work: dict[tuple[str, int], _Work] = field(default_factory=dict)
    _waits: list[_Work] = field(default_factory=list)
    _stops: dict[tuple[str, str, str], ShadowStop] = field(default_factory=dict)
    _series: list[ShadowLook] = field(default_factory=list)
    _step: int = 1
    _assumed: Counter[str] = field(default_factory=Counter)
    _first_s: int = 0
    _last: Picture | None = None
    _left_out: set[tuple[str, int]] = field(default_factory=set)
    _stops_left_out: set[tuple[str, str, str]] = field(default_factory=set)
    #: Keys of the workloads that were pending, would start, be stopped and be moved.
    _keys: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def look(
        self, picture: Picture, assumed: Mapping[str, int], started: Mapping[str, int] | None = None
    ) -> None:
        """Add a look. `started` is when removed workloads started, by key."""
        now_s = picture.snapshot.now_s
        self._first_s = self._first_s or now_s
        self._last = picture
        self._assumed |= Counter(assumed)
        now = _of_now(picture)
        for project, sums in now.items():
            known = self._sums.setdefault(project, _Sums())
            for name in _Sums.__slots__:
                setattr(known, name, getattr(known, name) + getattr(sums, name))
        self._note_sums(picture, now)
        self._note_work(picture)
        self._note_gone(picture, started or {})
        self._note_stops(picture)
        self._looks += 1

    @property
    def looks(self) -> int:
        """The number of looks."""
        return self._looks

    def report(self) -> ShadowReport:
        """The report of all looks so far; raises ValueError before the first."""
        if self._last is None:
            raise ValueError("there was no look yet")
        cards = self._last.snapshot.nodes.cards
        waited = max(1, self._looks_with_waiting)
        work = [self._line_of(each) for each in self._waits]
        n_of = {what: len(keys) for what, keys in self._keys.items()}
        return ShadowReport(
            since=as_time(self._first_s),
            until=as_time(self._last.snapshot.now_s),
            looks=self._looks,
            looks_with_waiting=self._looks_with_waiting,
            gpus=format_gpus(sum(cards.capacity_milli)),
            nodes=len(cards.ix),
            idle_while_waiting=format_tenths(self._idle // waited),
            ballast_idle_while_waiting=format_tenths(self._ballast_idle // waited),
            projects=list(self._projects()),
            work=sorted(work, key=lambda each: (-each.seconds, each.workload)),
            stops=list(self._stops.values()),
            series=self._series,
            not_known=[
                Assumption(count=count, text=text) for text, count in sorted(self._assumed.items())
            ],
            is_by_namespace=self.is_by_namespace,
            waited=n_of.get("waits", 0),
            would_start=n_of.get("starts", 0),
            would_stop=n_of.get("stops", 0),
            would_move=n_of.get("moves", 0),
            left_out=len(self._left_out),
            stops_left_out=sum(what == "stops" for what, *_ in self._stops_left_out),
            moves_left_out=sum(what == "moves" for what, *_ in self._stops_left_out),
        )

    def _projects(self) -> list[ShadowProject]:
        found = []
        quotas, limits = _figures(self._last) if self._last else ({}, {})
        for project, sums in sorted(self._sums.items()):
            change = sums.given - sums.taken
            limit = limits.get(project, UNLIMITED)
            quota = quotas.get(project, 0)
            found.append(
                ShadowProject(
                    project=project,
                    quota=format_gpus(quota) if is_limited(quota) else "unlimited",
                    limit=format_gpus(limit) if is_limited(limit) else "",
                    owed=self._average(sums.owed),
                    held=self._average(sums.held),
                    ballast_held=self._average(sums.held + change),
                    waiting=self._average(sums.waiting),
                    ballast_waiting=self._average(max(0, sums.waiting - change)),
                )
            )
        return found

    def _average(self, milli: int) -> str:
        return format_tenths(milli // max(1, self._looks))

    def _note_sums(self, picture: Picture, now: Mapping[str, _Sums]) -> None:
        held = sum(each.held for each in now.values())
        change = sum(each.given - each.taken for each in now.values())
        waiting = sum(each.waiting for each in now.values())
        idle = _idle(picture)
        if waiting:
            self._looks_with_waiting += 1
            self._idle += idle
            self._ballast_idle += max(0, idle - change)
        if self._looks % self._step:
            return
        self._series.append(
            ShadowLook(
                time=as_time(picture.snapshot.now_s),
                held=format_gpus(held),
                ballast_held=format_gpus(held + change),
                waiting=format_gpus(waiting),
                ballast_waiting=format_gpus(max(0, waiting - change)),
                idle=format_gpus(idle),
            )
        )
        if len(self._series) > _MOST_POINTS:
            del self._series[1::2]
            self._step *= 2

    def _note_work(self, picture: Picture) -> None:
        """Record pending workloads, those that Ballast would start, and those that have started
        since the last look."""
        fates, now_s = fates_of(picture), picture.snapshot.now_s
        for each in picture.snapshot.workloads.values():
            if any(map(waits, each.pods)):
                fate = fates.get(each.key, {})
                self._keys["waits"].add(each.key)
                if "starts" in fate:
                    self._keys["starts"].add(each.key)
                known = self._wait_of(picture, each)
                if known is not None:
                    self._note_wait(picture, known, fate)
            elif (met := self._work.get(_identity(each))) is not None and not met.end_s:
                started = [pod.started_at for pod in each.pods if pod.started_at]
                _end(met, "started", min(max(started, default=now_s), now_s))

    def _wait_of(self, picture: Picture, workload: WorkloadView) -> _Work | None:
        """The workload's current wait, a new one if it has run since; None in a full report."""
        identity = _identity(workload)
        known = self._work.get(identity)
        if known is not None and not known.end_s:
            return known
        if len(self._waits) >= MOST_LINES:
            self._left_out.add(identity)
            return None
        known = self._work[identity] = _new_work(picture, workload, known.end_s if known else 0)
        self._waits.append(known)
        return known

    def _note_wait(
        self, picture: Picture, work: _Work, fate: Mapping[str, tuple[int, int, str]]
    ) -> None:
        """Record that the workload is pending, and Ballast's decision about it."""
        line, now_s = work.entry, picture.snapshot.now_s
        line.seconds = max(0, now_s - work.since_s)
        if work.ballast_s:
            return
        if "starts" in fate:
            work.ballast_s = now_s
            line.ballast_at_first_look = self._looks == 0
            line.message = fate["starts"][2]
            line.taken = _taken_for(picture, line.workload)
        else:
            line.message = fate["waits"][2] if "waits" in fate else ""

    def _note_gone(self, picture: Picture, started: Mapping[str, int]) -> None:
        """Record the end of waits of workloads that no longer exist."""
        now_s = picture.snapshot.now_s
        there = set(map(_identity, picture.snapshot.workloads.values()))
        for identity, known in self._work.items():
            if identity in there or known.end_s:
                continue
            start_s = started.get(identity[0], -1)
            if start_s == 0 or start_s >= known.since_s:
                _end(known, "started", min(start_s or now_s, now_s))
            else:
                _end(known, "gone", now_s)

    def _note_stops(self, picture: Picture) -> None:
        """Record pods that would be stopped or moved, once for each workload and beneficiary."""
        found: dict[tuple[str, str, str], list[PodView]] = {}
        notes: dict[tuple[str, str, str], str] = {}
        for each in leaving(picture.plan):
            key = _what(each), each.workload, each.beneficiary
            self._keys[key[0]].add(each.workload)
            found.setdefault(key, []).append(each.pod)
            notes.setdefault(key, each.note if isinstance(each, Eviction) else "")
        for key, pods in found.items():
            what, workload, beneficiary = key
            if key in self._stops:
                continue
            if len(self._stops) >= MOST_LINES:
                self._stops_left_out.add(key)
                continue
            view = picture.snapshot.workloads.get(workload)
            self._stops[key] = ShadowStop(
                what="stops" if what == "stops" else "moves",
                workload=workload,
                project=view.project if view else "",
                pods=len(pods),
                request=format_gpus(sum(pod.held_milli for pod in pods)),
                beneficiary=beneficiary,
                lost=format_hours(sum(lost_milli_seconds(picture, pod) for pod in pods)),
                message=notes[key],
                time=as_time(picture.snapshot.now_s),
            )

    @staticmethod
    def _line_of(work: _Work) -> ShadowWork:
        if work.ballast_s:
            work.entry.ballast_seconds = max(0, work.ballast_s - work.since_s)
        return work.entry


def _identity(workload: WorkloadView) -> tuple[str, int]:
    """Distinguishes the workload from a later one of the same name."""
    return workload.key, workload.created_at


def _new_work(picture: Picture, workload: WorkloadView, not_before_s: int) -> _Work:
    since_s = max(workload.waits_since or workload.created_at, not_before_s)
    line = ShadowWork(
        workload=workload.key,
        project=workload.project,
        pods=sum(map(waits, workload.pods)),
        request=format_gpus(picture.asked_milli(workload, is_waiting_only=True)),
        waits_since=as_time(since_s),
        seconds=0,
        outcome="waits",
    )
    return _Work(line, since_s)


def _end(work: _Work, outcome: Outcome, at_s: int) -> None:
    work.end_s = at_s
    work.entry.outcome, work.entry.seconds = outcome, max(0, at_s - work.since_s)


def _of_now(picture: Picture) -> dict[str, _Sums]:
    """Every project's figures at this look, over all node pools."""
    snapshot, plan = picture.snapshot, picture.plan
    found = {
        name: _Sums() for name, view in snapshot.queues.items() if view.parent and "/" not in name
    }
    for (queue, _), share in plan.shares.items():
        if queue in found:
            found[queue].owed += share.fair_share[GPU]
            found[queue].held += share.allocated[GPU]
    for workload in snapshot.workloads.values():
        if workload.project in found:
            found[workload.project].waiting += picture.asked_milli(workload, is_waiting_only=True)
    for given in plan.admissions:
        if given.workload.project in found:
            found[given.workload.project].given += sum(each.milli for each in given.placements)
    for eviction in plan.evictions:
        view = snapshot.workloads.get(eviction.workload)
        if view is not None and view.project in found:
            found[view.project].taken += eviction.pod.held_milli
    return {name: sums for name, sums in found.items() if sums.held or sums.waiting or sums.owed}


def _figures(picture: Picture) -> tuple[dict[str, int], dict[str, int]]:
    """Quotas and limits by project, over all node pools."""
    quotas: dict[str, int] = {}
    limits: dict[str, int] = {}
    for name, view in picture.snapshot.queues.items():
        quotas[name] = min(UNLIMITED, sum(each.gpu.quota for each in view.pools.values()))
        limits[name] = min(UNLIMITED, sum(each.gpu.limit for each in view.pools.values()))
    return quotas, limits


def _idle(picture: Picture) -> int:
    """Free milli-GPU on ready nodes."""
    table = picture.snapshot.nodes
    cards = table.cards
    return sum(
        max(0, cards.card_free[ix * cards.stride + card])
        for ix in cards.ix.values()
        if table.is_ready[ix]
        for card in range(cards.n_cards[ix])
    )


def _taken_for(picture: Picture, key: str) -> dict[str, int]:
    """Pods that would be stopped or moved for the workload, by their project."""
    found: Counter[str] = Counter()
    for each in leaving(picture.plan):
        if each.beneficiary == key:
            view = picture.snapshot.workloads.get(each.workload)
            found[view.project if view else ""] += 1
    return dict(found)


def _what(each: Eviction | Move) -> str:
    return "stops" if isinstance(each, Eviction) else "moves"
