"""Stage `empty-nodes`: moves all pods of a little used node to other used nodes, so that an
autoscaler finds the node empty.

It serves node pools with `consolidate_after_s` in which no pod starts, moves or is evicted, and
that no pending or evicted workload could use. In each pool it empties one node: either every pod of
the node fits now on other used nodes, or none moves. Nodes without work are never filled, so each
plan leaves one used node less, and without new work the stage comes to an end.

Nodes that cannot be emptied are filled first, then others by the placement policy of the pool.

A node is emptied only if each of its pods may be moved and has run for `consolidate_after_s`, with
all of its gang, and if the moves lose no more work than the node's GPUs could do in that time. A
moved pod starts again, so no pod is stopped for this twice within that time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from extender.api.reasons import Reason
from extender.api.units import MILLI_PER_GPU
from extender.policy.placement.node_filter import NodeSet
from extender.policy.plan import Move, Placement
from extender.policy.preemption.candidates import Candidates
from extender.policy.preemption.lost_work import seconds_lost
from extender.policy.preemption.min_runtime import protected_by
from extender.policy.preemption.solver import Preemption
from extender.policy.queues.min_runtime import move_minimum_s
from extender.policy.queues.room import check_room
from extender.policy.session import Session
from extender.policy.workloads.gangs import are_independent
from extender.policy.workloads.pending import Pending
from extender.policy.workloads.pod_classes import in_packing_order
from extender.state.model import GPU, PodView, PoolView

#: Nodes that a cycle tries to empty, those that hold least first. Their pods are the easiest to
#: place, so if none of these nodes can be emptied, the next ones seldom can.
_MOST_TRIES: Final = 32


def empty_nodes(preemption: Preemption) -> None:
    """Empty one node, if any can be emptied, of every pool with `consolidate_after_s`."""
    session = preemption.session
    for name, view in sorted(session.snapshot.pools.items()):
        if view.consolidate_after_s and _packs(view) and not session.is_spent():
            _Pool(preemption, name, view).empty_one()


def _packs(view: PoolView) -> bool:
    """Whether the pool packs GPU work. Pools of other policies are not served."""
    return view.policy == "fairshare" and view.gpu_placement != "spread"


@dataclass(slots=True)
class _Pool:
    """`free_milli` is what each used node has free, by ix; `kept` are nodes with pods without GPUs,
    which are never moved; `protected` says by pod p whether minimum run times protect it."""

    preemption: Preemption
    name: str
    view: PoolView
    session: Session = field(init=False)
    free_milli: dict[int, int] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    protected: bytearray = field(init=False)

    def __post_init__(self) -> None:
        self.session = self.preemption.session

    def empty_one(self) -> None:
        """Empty the first node whose pods fit elsewhere, in the order of what the nodes hold. Cheap
        checks come first, since most cycles end there."""
        if not self._has_room_for_one() or not self._is_at_rest():
            return
        candidates = self.preemption.solver_of(self.name).candidates
        names = self.session.snapshot.nodes.cards.names
        self.protected = protected_by(self.session, candidates, move_minimum_s)
        movable = {ix: self._movable(candidates, ix) for ix in self.free_milli}
        stay = frozenset(ix for ix, pods in movable.items() if not pods)
        found = [
            (self._held(ix), lost, names[ix], ix)
            for ix, pods in movable.items()
            if pods
            and self._is_due(stopping := self._stopping(candidates, pods).values())
            and (lost := self._lost(stopping)) <= self._most_lost(ix)
        ]
        for _, _, _, ix in sorted(found)[:_MOST_TRIES]:
            if self._empty(candidates, ix, movable[ix], stay):
                return

    # -- whether the pool is considered --------------------------------------------------------

    def _has_room_for_one(self) -> bool:
        """Whether the other used nodes have as much free as some node holds; sets `free_milli`."""
        nodes = self.session.snapshot.nodes
        cards = nodes.cards
        for ix in self.session.places.node_filter.ready(self.name):
            free = sum(cards.free_of(ix))
            if free < cards.capacity_milli[ix] and not nodes.free_counted[ix]:
                self.free_milli[ix] = free
        in_all = sum(max(0, free) for free in self.free_milli.values())
        return any(self._held(ix) <= in_all - free for ix, free in self.free_milli.items())

    def _held(self, ix: int) -> int:
        return self.session.snapshot.nodes.cards.capacity_milli[ix] - self.free_milli[ix]

    def _is_at_rest(self) -> bool:
        """Whether no pending or evicted work could run in the pool and no pod starts or moves
        there; fills `kept`. Costs one pass over all pods."""
        session, snapshot = self.session, self.session.snapshot
        waiting = chain(session.backlog.pending, session.backlog.deferred, session.backlog.yielding)
        if any(map(self._could_run, waiting)):
            return False
        if any(map(self._is_here, chain(snapshot.kept, session.draft.nodes()))):
            return False
        for workload in snapshot.workloads.values():
            if session.draft.is_shrinking(workload.key) and self.name in workload.pools:
                return False
            for pod in workload.pods:
                if pod.state == "bound" and pod.demand.wants_gpu:
                    continue
                if self._is_here(pod.node):
                    if pod.state in ("reserved", "nominated"):
                        return False
                    self.kept.add(pod.node)
        return True

    def _could_run(self, pending: Pending) -> bool:
        """Whether the workload could run in the pool, now or on nodes an autoscaler may add."""
        session, workload = self.session, pending.workload
        if self.name not in workload.pools or not session.could_ever_start(pending, self.name):
            return False
        elastic, need = self.view.elastic, pending.need()
        most = elastic.max_nodes * elastic.n_gpus * MILLI_PER_GPU if elastic else 0
        if need[GPU] > max(most, session.queues[self.name].capacity[GPU]):
            return False
        leaf = session.queue_of(workload, self.name)
        return check_room(leaf, workload, need, is_now=False) is None

    def _is_here(self, node: str) -> bool:
        return self.session.snapshot.nodes.pool_of(node) == self.name

    # -- a single node -------------------------------------------------------------------------

    def _movable(self, candidates: Candidates, ix: int) -> Sequence[int]:
        """The node's pods p if all may be moved and hold all of its used GPUs; otherwise none."""
        pods = range(candidates.start[ix], candidates.start[ix + 1])
        held = sum(candidates.pods[p].held_milli for p in pods)
        nodes = self.session.snapshot.nodes
        if nodes.stays[ix] or nodes.cards.names[ix] in self.kept or held != self._held(ix):
            return ()
        return pods if all(self._may_move(candidates, p) for p in pods) else ()

    def _may_move(self, candidates: Candidates, p: int) -> bool:
        """Whether the pod may be moved, and kube-scheduler would bind its successor as planned."""
        pod = candidates.pods[p]
        return (
            bool(candidates.is_here[p])
            and candidates.can_move(p)
            and not self.protected[p]
            and not pod.stays
            # It may keep apart from pods without GPUs, which the snapshot lacks.
            and not pod.constraints.pod_anti_affinity
            and not self.session.places.pod_affinity.concerns((pod,))
        )

    def _stopping(self, candidates: Candidates, pods: Sequence[int]) -> dict[str, PodView]:
        """By UID, the pods that stop when these move: all pods of a gang."""
        found: dict[str, PodView] = {}
        for p in pods:
            workload, pod = candidates.workloads[candidates.owner[p]], candidates.pods[p]
            members = (pod,) if are_independent(workload) else workload.pods
            found.update((each.uid, each) for each in members if each.node)
        return found

    def _is_due(self, pods: Iterable[PodView]) -> bool:
        """Whether all of the pods have run for `consolidate_after_s`."""
        latest = self.session.snapshot.now_s - self.view.consolidate_after_s
        return all(0 < pod.started_at <= latest for pod in pods)

    def _lost(self, pods: Iterable[PodView]) -> int:
        """What stopping the pods costs in milli-GPU-seconds. A pod that states no checkpoint
        interval counts as never saved: the pool's default is not enough for an eviction that frees
        no place for other work."""
        now_s = self.session.snapshot.now_s
        return sum(seconds_lost(pod, now_s, 0) * pod.held_milli for pod in pods)

    def _most_lost(self, ix: int) -> int:
        """What the node's GPUs could do within `consolidate_after_s`, in milli-GPU-seconds."""
        capacity = self.session.snapshot.nodes.cards.capacity_milli[ix]
        return self.view.consolidate_after_s * capacity

    def _empty(
        self, candidates: Candidates, ix: int, pods: Sequence[int], stay: frozenset[int]
    ) -> bool:
        """Move all these pods of the node to other used nodes, or none; returns whether they move.
        Nodes in `stay`, which cannot be emptied, are filled first: else a pod might move twice."""
        session = self.session
        frames = NodeSet(nodes=stay), NodeSet(nodes=frozenset(self.free_milli) - {ix})
        by_uid = {candidates.pods[p].uid: p for p in pods}
        mark, moved = session.sim.checkpoint(), dict[int, Placement]()
        for pod in in_packing_order([candidates.pods[p] for p in pods]):
            p = by_uid[pod.uid]
            placement = self._place(pod, frames) if candidates.can_move(p) else None
            if placement is None or _holds_more(placement):
                session.sim.rollback(mark)
                for back in moved:
                    candidates.move(back, is_moving=False)
                return False
            candidates.move(p, is_moving=True)
            moved[p] = placement
        self._commit(candidates, ix, moved)
        return True

    def _place(self, pod: PodView, frames: Iterable[NodeSet]) -> Placement | None:
        place_pod = self.session.places.place_pod
        placed = (place_pod(pod, self.name, "now", frame) for frame in frames if frame.nodes)
        return next((each for each in placed if each is not None), None)

    def _commit(self, candidates: Candidates, ix: int, moved: Mapping[int, Placement]) -> None:
        """Put the moves into the plan; the resources that the pods hold now are free later."""
        session = self.session
        for p, placement in moved.items():
            pod = candidates.pods[p]
            session.sim.evict(ix, pod, pod.cards)
            workload = candidates.workloads[candidates.owner[p]].key
            session.draft.move(Move(placement, workload, Reason.NODE_EMPTIED, ""))


def _holds_more(placement: Placement) -> bool:
    """Whether the pod would hold more GPUs than now, since the memory that it requests is a larger
    fraction of a smaller card. Its queue may be at its limit."""
    before, after = (sum(c.milli for c in each.cards) for each in (placement.pod, placement))
    return after > before
