"""The pending pods of a workload, in the chunks in which they are placed.

The first chunk is what the minimum lacks; it is placed whole or not at all. Then every further unit
(see `gangs`) is a chunk of its own, ordered behind all minimums of equal priority.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from extender.api.names import ANNOTATION_HOLD
from extender.api.reasons import Reason, Refused
from extender.policy.plan import Placement
from extender.policy.queues.tree import PoolQueues, held_pool
from extender.policy.workloads.gangs import (
    is_gang,
    is_satisfied,
    least_pods,
    live_pods,
    next_chunks,
)
from extender.policy.workloads.pod_classes import Shape, shapes_of
from extender.state.model import Amounts, PodView, WorkloadView
from extender.state.snapshot import Snapshot
from extender.state.tally import pod_amounts, startable_and_spare, starting_order, sum_amounts

#: Seconds after which a workload has waited long. One hour is short compared with trainings that
#: starve others, and long compared with small workloads.
PATIENCE_S: Final = 3600

#: How many chunks of a workload are tried, including the first. They differ in shape; trying more
#: would cost more than it finds.
_MOST_CHUNKS: Final = 8

#: Priority (higher first), fullness (running gangs below their minimum first), age, key; unique.
SortKey = tuple[int, int, int, str]


@dataclass(slots=True, eq=False)
class Pending:
    """A workload with waiting pods. `pools` are those it may still use, in order of preference.

    `waiting` is in starting order; `spare` pods are beyond the maximum that may run at once. If
    `leave_out` changed `waiting`, `counted` are those before, which the queue's requests count.
    `live` are the placed pods, including those placed in this cycle; `nodes` has the nodes of the
    latter by uid.
    `is_behind`: in strict order it was not tried, since a workload before it did not fit.
    `only_holds_up`: it could never fit, and only blocks its queue.
    `is_single`: a single pod waits, and may start independently of the workload's other pods.
    `card_mib` is the memory of the largest card in `pools`, on which requests in MiB cost least.
    """

    workload: WorkloadView
    waiting: Sequence[PodView]
    pools: tuple[str, ...]
    live: list[PodView] = field(default_factory=list)
    card_mib: int = 0
    is_behind: bool = False
    only_holds_up: bool = False
    nodes: dict[str, str] = field(default_factory=dict)
    spare: Sequence[PodView] = ()
    counted: Sequence[PodView] = ()
    _chunk: Sequence[PodView] | None = None
    _need: Amounts | None = None
    _shapes: Sequence[Shape] | None = None
    is_single: bool = field(init=False)
    sort_key: SortKey = field(init=False)

    def __post_init__(self) -> None:
        self._set_order()
        if self.is_single:
            self._chunk = self.waiting

    def __lt__(self, other: "Pending") -> bool:
        return self.sort_key < other.sort_key

    @property
    def chunk(self) -> Sequence[PodView]:
        """The pods to place next, all or none."""
        if self._chunk is None:
            self._chunk = next(iter(self.chunks()), ())
        return self._chunk

    @property
    def shapes(self) -> Sequence[Shape]:
        """The distinct shapes among the pods of `chunk`."""
        if self._shapes is None:
            self._shapes = shapes_of(self.chunk)
        return self._shapes

    def is_like(self, other: "Pending") -> bool:
        """Whether both are single pods with equal requests, constraints, pools, queue and order."""
        mine, its = self.workload, other.workload
        return (
            self.is_single
            and other.is_single
            and self.waiting[0].constraints is other.waiting[0].constraints
            and self.waiting[0].demand == other.waiting[0].demand
            and self.pools == other.pools
            and (mine.project, mine.user) == (its.project, its.user)
            and mine.is_preemptible is its.is_preemptible
            and mine.kind == its.kind
            and mine.priority == its.priority
        )

    def chunks(self) -> Iterable[Sequence[PodView]]:
        """`chunk`, followed by alternatives to try if it does not fit, best first."""
        return next_chunks(self.workload, self.live, self.waiting)

    def other_chunks(self) -> Iterable[Sequence[PodView]]:
        """The first alternatives to `chunk`, best first."""
        return islice(self.chunks(), 1, _MOST_CHUNKS)

    @property
    def is_gang(self) -> bool:
        """As `gangs.is_gang`."""
        return is_gang(self.workload)

    @property
    def is_surplus(self) -> bool:
        """Whether the waiting pods are above the workload's minimum."""
        return bool(self.live) and is_satisfied(self.workload, self.live)

    def need(self) -> Amounts:
        """The chunk's request; requests in MiB are measured on the largest card."""
        if self._need is None:
            self._need = self.need_of(self.chunk)
        return self._need

    def need_of(self, chunk: Sequence[PodView]) -> Amounts:
        """The request of any chunk, measured like `need`."""
        if len(chunk) == 1:
            return pod_amounts(chunk[0].demand, self.card_mib)
        return sum_amounts(pod_amounts(pod.demand, self.card_mib) for pod in chunk)

    def advance(self, placements: Sequence[Placement], pool: str) -> "Pending | None":
        """Record the chunk's placements in `pool`; returns itself if it has another chunk."""
        if len(placements) == len(self.waiting):
            self.waiting = ()
            return None
        placed = {placement.pod.uid: placement.node for placement in placements}
        self.live.extend(placement.pod for placement in placements)
        self.nodes.update(placed)
        self.waiting = [pod for pod in self.waiting if pod.uid not in placed]
        if self.is_gang:
            self.pools = (pool,)
        self.restart()
        # The remaining pods may be too few for a chunk, and an empty chunk would fit everywhere.
        return self if self.chunk else None

    def leave_out(self, pods: Sequence[PodView]) -> None:
        """Remove these waiting and spare pods, if the workload can start without them. Other spare
        pods replace removed waiting ones."""
        before, uids = self.waiting, {pod.uid for pod in pods}
        stay = [pod for pod in before if pod.uid not in uids]
        spare = [pod for pod in self.spare if pod.uid not in uids]
        self.waiting = [*stay, *spare[: len(before) - len(stay)]]
        self.restart()
        if self.chunk:
            self.counted = before
        else:
            self.waiting = before
            self.restart()

    def restart(self) -> None:
        """Recompute what depends on the waiting and live pods."""
        self._chunk = self._need = self._shapes = None
        self._set_order()

    def _set_order(self) -> None:
        """Set `is_single` and `sort_key`."""
        workload, is_one = self.workload, len(self.waiting) == 1
        self.is_single = is_one and workload.min_member <= 1 and workload.tree is None
        age, key = workload.created_at, workload.key
        self.sort_key = -workload.priority, self._fullness(), age, key

    def _fullness(self) -> int:
        """-1 for a running gang below its minimum, 0 for a workload without live pods, 1 at the
        minimum, 2 above.

        A gang that lost a pod holds cards without progress, so it is completed first. Surplus comes
        after minimums, and the first surplus of one workload before the second of another.
        """
        if not self.live:
            return 0
        if not self.is_surplus:
            return -1
        return 1 if len(self.live) <= least_pods(self.workload) else 2


class PendingReader:
    """Reads the pending workloads of one cycle; results per list of pools are cached."""

    def __init__(self, snapshot: Snapshot, pools: Mapping[str, PoolQueues]) -> None:
        self._snapshot = snapshot
        self._pools = pools
        self._usable: dict[tuple[str, ...], tuple[tuple[str, ...], int]] = {}

    def read(self, workload: WorkloadView) -> Pending | Refused | None:
        """The pending workload, or why it cannot be tried; None if no pod waits."""
        pods = workload.pods
        gated = [pod for pod in pods if pod.state == "gated" and not pod.is_terminating]
        if not gated:
            return None
        spare: Sequence[PodView] = ()
        if len(pods) == 1 and not pods[0].other_gates and workload.max_concurrent_pods is None:
            waiting = gated
        else:
            first, spare = startable_and_spare(workload)
            waiting = sorted((p for p in first if p.state == "gated"), key=starting_order)
        now_s = self._snapshot.now_s
        spare = [pod for pod in spare if pod.state == "gated" and _backoff_until(pod) <= now_s]
        backed_off = [pod for pod in waiting if _backoff_until(pod) > now_s]
        if backed_off:
            waiting = [pod for pod in waiting if _backoff_until(pod) <= now_s]
        usable, card_mib = self._pools_of(workload.pools)
        pending = Pending(workload, waiting, usable, card_mib=card_mib, spare=spare)
        if len(pods) > len(gated):
            _read_live(self._snapshot, self._pools, pending)
        refused = _why_not(pending, gated, self._pools)
        if refused is not None and backed_off and workload.problem is None:
            return _why_backed_off(backed_off[0], now_s)
        return refused or pending

    def _pools_of(self, listed: tuple[str, ...]) -> tuple[tuple[str, ...], int]:
        """The listed pools that exist, and the memory of their largest card."""
        found = self._usable.get(listed)
        if found is None:
            usable = tuple(pool for pool in dict.fromkeys(listed) if pool in self._pools)
            card_mib = max((self._pools[pool].largest_card_mib for pool in usable), default=0)
            found = self._usable[listed] = usable, card_mib
        return found


def _read_live(snapshot: Snapshot, pools: Mapping[str, PoolQueues], pending: Pending) -> None:
    """Set the live pods, including moved pods whose successors have a nomination."""
    workload = pending.workload
    moved = [pod for pod in workload.pods if pod.is_terminating and pod.next_node]
    pending.live = [*moved, *live_pods(workload)]
    pending.nodes = {pod.uid: pod.next_node for pod in moved}
    for pod in moved:
        pending.waiting = _without_successor(pod, pending.waiting)
    if pending.live and pending.is_gang:
        pool = _main_pool(snapshot, pending)
        pending.pools = (pool,) if pool in pools else ()
    pending.restart()


def _main_pool(snapshot: Snapshot, pending: Pending) -> str:
    """The pool with most of the live pods; ties go to the pool that the workload prefers."""
    n_in = Counter(held_pool(snapshot, pod) for pod in pending.live)
    if len(n_in) == 1:
        return next(iter(n_in))
    rank = {pool: at for at, pool in enumerate(pending.workload.pools)}
    return min(n_in, key=lambda pool: (-n_in[pool], rank.get(pool, len(rank)), pool))


def _why_not(
    pending: Pending, gated: Sequence[PodView], pools: Mapping[str, PoolQueues]
) -> Refused | None:
    """Why the workload cannot be tried, whatever is free; None if it can."""
    workload, key = pending.workload, pending.workload.key
    if workload.problem is not None:
        return workload.problem
    if not pending.chunk:
        return why_too_few(pending, gated)
    if not pending.pools:
        names = ", ".join(workload.pools) or "-"
        return Refused(Reason.UNKNOWN_NODE_POOL, f"{key}: none of its node pools exists: {names}")
    leaf, project = pools[pending.pools[0]].leaf_of(workload), workload.project
    if leaf is None:
        return Refused(Reason.UNKNOWN_PROJECT, f"{key}: no project {project or '-'}")
    if leaf.children:
        detail = f"{key}: {project} is no project, there are queues below it"
        return Refused(Reason.UNKNOWN_PROJECT, detail)
    return None


def _backoff_until(pod: PodView) -> int:
    return max(pod.refusals.until, pod.denial.until if pod.denial else 0)


def _why_backed_off(pod: PodView, now_s: int) -> Refused:
    """On which nodes and why the pod was not bound, and when it is planned again."""
    if pod.denial is not None and pod.denial.until > now_s:
        again = f"it is planned again in {pod.denial.until - now_s} s"
        return Refused(Reason.RELEASE_REFUSED, f"{pod.key}: {pod.denial.message}; {again}")
    where = ", ".join(each.name for each in pod.refusals.nodes)
    why = f": {pod.refusals.why}" if pod.refusals.why else ""
    again = f"it is planned again in {pod.refusals.until - now_s} s"
    detail = f"{pod.key}: not bound{' on ' if where else ''}{where}{why}; {again}"
    return Refused(Reason.PLACEMENT_REFUSED, detail)


def pending_since(workload: WorkloadView) -> int:
    """Since when the workload waits: its creation, or the loss of its last place."""
    return max(workload.created_at, workload.waits_since)


def has_waited_long(workload: WorkloadView, now_s: int) -> bool:
    """Whether the workload has waited for at least `PATIENCE_S`."""
    return now_s - pending_since(workload) >= PATIENCE_S


def why_too_few(pending: Pending, gated: Sequence[PodView]) -> Refused:
    """Why none or too few of the pods may start."""
    key, n_live, least = pending.workload.key, len(pending.live), least_pods(pending.workload)
    held = sorted({gate for pod in gated for gate in pod.other_gates})
    if ANNOTATION_HOLD in held:
        n = sum(ANNOTATION_HOLD in pod.other_gates for pod in gated)
        which = f"{n} of its {len(gated)} waiting pods" if n < len(gated) else "its waiting pods"
        return Refused(
            Reason.HELD_BY_OWNER, f"{key}: the annotation {ANNOTATION_HOLD} holds {which}"
        )
    if held:
        return Refused(Reason.HELD_BY_OTHER_GATE, f"{key}: held by {', '.join(held)}")
    leaving = sorted({pod.node for pod in pending.live if pod.is_terminating})
    if not pending.waiting and leaving:
        detail = f"{key}: waits for its moved pods to leave {', '.join(leaving)}"
        return Refused(Reason.WAITING_FOR_VICTIMS, detail)
    most = pending.workload.max_concurrent_pods or 0
    if not pending.waiting:
        n_live = max(n_live, most)
        return Refused(Reason.OVER_LIMIT, f"{key}: runs {n_live} pods at once, as many as it may")
    have = n_live + len(pending.waiting)
    if pending.spare:
        lacks = f"the next pods must start together, and only {most} of its pods may run at once"
        return Refused(Reason.OVER_LIMIT, f"{key}: {lacks}")
    lacks = (
        f"has {have} of the {least} pods that must run together"
        if have < least
        else "has too few pods in some of the groups that must run together"
    )
    return Refused(Reason.GANG_INCOMPLETE, f"{key}: {lacks}")


def why_behind(pending: Pending, first: str) -> Refused:
    """The refusal of a workload in strict order while the workload `first` does not fit."""
    detail = f"{pending.workload.key}: waits behind {first}, which is blocked, in strict order"
    return Refused(Reason.WAITING_FOR_TURN, detail)


def _without_successor(moved: PodView, waiting: Sequence[PodView]) -> Sequence[PodView]:
    """`waiting` without the pod that uses the nomination of the moved pod's successor."""
    for at, pod in enumerate(waiting):
        if pod.demand == moved.demand:
            return [*waiting[:at], *waiting[at + 1 :]]
    return waiting
