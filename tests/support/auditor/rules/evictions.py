"""E2: which pods may be evicted.

The API server evicts a pod in two writes: the first marks it (condition DisruptionTarget), the
second deletes it (deletionTimestamp). The second is the eviction: if etcd is killed between them,
the pod stays, marked, and a later plan may decide otherwise. Whether the eviction was allowed
follows from the ledger and the quotas at its revision, and its purpose from the event about the
pod:

- `Reclaimed`: the pod is preemptible, and its project or department was above its quota. These
  count as held: `nominated` rows of the queue, also those for the successor of a moved pod once
  that pod is deleted; rows of other members of its gang, evicted or not, since a gang is evicted
  whole; and rows of pods that ended within the last `lag_s`, which the controller may not have
  seen. Rows of pods that were evicted earlier do not count.
- `Preempted`: the pod is preemptible, and a pod of its project with higher priority is pending.
- `Moved`, `NodeEmptied`: the pod is preemptible and has an owner that creates it again, and when it
  is deleted, a `nominated` row keeps a place for its successor on another node.
- `GangStale`: always allowed.
- `Unledgered`: always allowed; cards that claims hold beyond a row are not examined.

An eviction without an event (the controller may have been killed before it wrote it) is judged when
the audit ends: as a move if a place is kept for a successor, else as reclaim. If other writes of
the pod, or some seconds, lie between mark and deletion, another program or a user may have deleted
the pod, and only an event can tell.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from extender.api.reasons import Reason
from tests.support.auditor.rules.rule import Finding, Limits, Rule
from tests.support.auditor.sight import EventSeen, PodSeen, RowSeen
from tests.support.auditor.world import HOLDING, Step, World

EXPLAINS = (
    Reason.RECLAIMED,
    Reason.PREEMPTED,
    Reason.MOVED,
    Reason.NODE_EMPTIED,
    Reason.GANG_STALE,
    Reason.UNLEDGERED,
)
#: The longest time between the API server's two writes of an eviction.
ONE_REQUEST_S: Final = 5


@dataclass(slots=True, frozen=True)
class _Eviction:
    """An evicted pod and its queue at the revision of the eviction.

    `is_certain`: the previous write of the pod was the mark, of the same request; else only an
    event proves that Ballast evicted it. `waiting`: the priorities of pending pods of its project.
    """

    pod: PodSeen
    is_certain: bool
    revision: int
    is_above: bool
    standing: str
    waiting: tuple[int, ...]
    is_kept: bool


@dataclass(slots=True, frozen=True)
class _Ended:
    """Cards that a pod held before it ended. `gang`: it was evicted as a member of this group."""

    seen_s: float
    gang: str
    project: str
    pool: str
    milli: int


class Evictions(Rule):
    """Judges evictions, and keeps each until its purpose is known."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self._open: dict[str, _Eviction] = {}
        #: UIDs of pods whose last write was the mark.
        self._just_marked: set[str] = set()
        self._reasons: dict[str, str] = {}
        self._ended: deque[_Ended] = deque()
        self.n_evictions = 0

    @property
    def n_open(self) -> int:
        """Number of evictions without an event so far."""
        return len(self._open)

    def on_step(self, world: World, step: Step) -> Iterator[Finding]:
        self._note_end(world, step)
        match step.before, step.after:
            case _, EventSeen(uid=uid, reason=reason) if reason in EXPLAINS:
                self._reasons[uid] = reason
                yield from self._close(uid, reason)
            case PodSeen(is_leaving=False), PodSeen(is_leaving=True) as pod if pod.eviction:
                yield from self._open_case(world, step, pod)
        self._note_mark(step)

    def at_rest(self, world: World) -> Iterator[Finding]:
        for uid in list(self._open):
            yield from self._close(uid, "")

    def _note_mark(self, step: Step) -> None:
        match step.before, step.after:
            case PodSeen(eviction=""), PodSeen(uid=uid) as pod if pod.eviction:
                self._just_marked.add(uid)
            case PodSeen(uid=uid), _:
                self._just_marked.discard(uid)

    def _open_case(self, world: World, step: Step, pod: PodSeen) -> Iterator[Finding]:
        rows = [(node, row) for node, row in world.rows_of(pod.uid) if not row.keeps_for]
        if pod.asked is None or not rows:
            return
        is_certain = pod.uid in self._just_marked and pod.left_after_s <= ONE_REQUEST_S
        self.n_evictions += is_certain
        node, row = rows[0]
        is_above, standing = self._standing_of(world, step, pod, row.project, world.pool_of(node))
        waiting = tuple(_waiting(world, pod.namespace, row.project))
        is_kept = len(world.rows_of(pod.uid)) > len(rows)
        self._open[pod.uid] = _Eviction(
            pod, is_certain, step.revision, is_above, standing, waiting, is_kept
        )
        if pod.eviction == "PreemptionByScheduler":
            yield from self._close(pod.uid, Reason.PREEMPTED)
        elif pod.uid in self._reasons:
            yield from self._close(pod.uid, self._reasons[pod.uid])

    def _standing_of(
        self, world: World, step: Step, pod: PodSeen, project: str, pool: str
    ) -> tuple[bool, str]:
        """(whether a queue is above its quota, in words), by the lower of the present quota and
        that of `lag_s` ago."""
        department = world.department_of(project)
        levels = (
            ("GpuProject", project, world.projects),
            ("GpuDepartment", department, world.departments),
        )
        used = [0, 0]
        for where, row in _claims(world):
            if world.pool_of(where) != pool or not _still_counts(world, pod, row):
                continue
            used[0] += row.milli if row.project == project else 0
            used[1] += row.milli if world.department_of(row.project) == department else 0
        for ended in self._gone_lately(_gang(pod), step.change.seen_s):
            if ended.pool == pool:
                used[0] += ended.milli if ended.project == project else 0
                used[1] += ended.milli if world.department_of(ended.project) == department else 0
        is_above, words = False, []
        for (kind, name, known), milli in zip(levels, used, strict=True):
            quota = world.quota(kind, name, pool)
            is_new = step.change.seen_s - quota.changed_s <= self.limits.lag_s
            deserved = min(quota.now, quota.before) if is_new else quota.now
            is_above |= name in known and milli > deserved
            words.append(f"{kind} {name} held {milli} of {deserved} milli")
        return is_above, ", ".join(words)

    def _gone_lately(self, gang: str, now_s: float) -> Iterator[_Ended]:
        """Ended pods whose cards still count when a member of `gang` (or of none) is evicted."""
        longest_s = max(self.limits.lag_s, self.limits.gang_bind_s)
        while self._ended and now_s - self._ended[0].seen_s > longest_s:
            self._ended.popleft()
        for ended in self._ended:
            is_recent = now_s - ended.seen_s <= self.limits.lag_s
            if ended.gang == gang if ended.gang else is_recent:
                yield ended

    def _note_end(self, world: World, step: Step) -> None:
        pod = step.before
        if not isinstance(pod, PodSeen) or pod.has_ended or world.is_live(pod.uid):
            return
        gang = _gang(pod)
        if pod.is_evicted and not gang:
            return
        for node, row in world.rows_of(pod.uid):
            if row.state in HOLDING:
                self._ended.append(
                    _Ended(
                        step.change.seen_s,
                        gang if pod.is_evicted else "",
                        row.project,
                        world.pool_of(node),
                        row.milli,
                    )
                )

    def _close(self, uid: str, reason: str) -> Iterable[Finding]:
        case = self._open.pop(uid, None)
        if case is None or not (case.is_certain or reason):
            return
        self.n_evictions += not case.is_certain
        subject, why = f"Pod {case.pod.key}", reason or "evicted, no event says why"
        if not reason and case.is_kept:
            reason = Reason.MOVED
        if reason in (Reason.GANG_STALE, Reason.UNLEDGERED):
            return
        if not case.pod.is_preemptible:
            yield Finding("E2", subject, f"{why}, but it is not preemptible")
        if reason in ("", Reason.RECLAIMED) and not case.is_above:
            yield Finding("E2", subject, f"{why} at revision {case.revision}, but {case.standing}")
        own = case.pod.priority
        if reason == Reason.PREEMPTED and not any(each > own for each in case.waiting):
            by = case.pod.eviction
            found = f"{by} at revision {case.revision}, own {own}, pending {list(case.waiting)}"
            yield Finding("E2", subject, f"{why}, but nothing of higher priority waits ({found})")
        # If the pod ended during its eviction, the kept place belongs to its successor.
        is_moved = reason in (Reason.MOVED, Reason.NODE_EMPTIED) and not case.pod.has_ended
        if is_moved and not (case.pod.owner and case.is_kept):
            when = f"{why} at revision {case.revision}"
            yield Finding("E2", subject, f"{when}, but no place is kept for its successor")


def _claims(world: World) -> Iterator[tuple[str, RowSeen]]:
    """(node, row) of all rows that count for queues: rows of live pods, nominated ones included,
    and rows for successors of moved pods."""
    for node, ledger in world.ledgers.items():
        for row in ledger.rows:
            if row.keeps_for or world.is_live(row.uid):
                yield node, row


def _still_counts(world: World, victim: PodSeen, row: RowSeen) -> bool:
    other = world.pods_by_uid.get(row.uid)
    if row.keeps_for:
        # Until the moved pod is deleted, it counts on its old node.
        return other is None or other.is_evicted
    if other is None or not other.is_evicted or row.uid == victim.uid:
        return True
    return _gang(other) == _gang(victim) != ""


def _gang(pod: PodSeen) -> str:
    """`namespace/group`; empty for a pod without a group."""
    return f"{pod.namespace}/{pod.group}" if pod.group else ""


def _waiting(world: World, namespace: str, project: str) -> Iterator[int]:
    """Priorities of pending pods of the project; `namespace` is one of its namespaces.

    A pod that is older than the webhooks has no label of its project.
    """
    for pod in world.pods.values():
        is_own = pod.project == project if pod.project else pod.namespace == namespace
        if is_own and not pod.node and not pod.has_ended:
            yield pod.priority
