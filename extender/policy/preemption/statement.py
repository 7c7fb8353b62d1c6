"""The operations of one attempt: pods are placed, evicted or moved.

Each operation changes the session's simulation and the candidates together and can be rolled back
to any checkpoint. A rollback also restores the order of placements and victims, which decides what
is tried first. A displaced pod has left its node and has no new placement yet. Evicted pods are
taken off their queue, moved pods are not.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import Struct

from extender.policy.placement.node_filter import WHOLE_POOL, NodeSet
from extender.policy.plan import Placement
from extender.policy.preemption.candidates import Candidates
from extender.policy.preemption.node_costs import Cost
from extender.policy.queues.queue import Queue, frozen
from extender.policy.session import Session
from extender.policy.workloads.pending import Pending
from extender.policy.workloads.pod_classes import Shape
from extender.state.model import Amounts, GroupView, PodView
from extender.state.nodes import NodeTable
from extender.state.tally import sum_amounts

#: A checkpoint of the simulation, nodes, and the function and arguments that undo the rest.
Step = tuple[int, Sequence[int], Callable[..., None], tuple[Any, ...]]

#: As in `costs.pxd`.
_MOST_LOST: Final = (1 << 52) - 1
_MOST_RANK: Final = (1 << 7) - 1
_MOST_PODS: Final = (1 << 8) - 1
_MOST_TURN: Final = (1 << 7) - 1


class PreemptionRequest(Struct, eq=False, gc=False):
    """A preemptor's request: a chunk of a workload in queue `leaf`, and what it needs.

    `nearness`: the tree of groups whose pods must be near one another, if any. `is_alike`: its pods
    are interchangeable on any node.
    """

    leaf: Queue
    pending: Pending
    chunk: Sequence[PodView]
    need: Amounts
    shapes: Sequence[Shape]
    is_alike: bool
    nearness: GroupView | None

    @property
    def key(self) -> str:
        """The workload's key."""
        return self.pending.workload.key


class EvictionUnit(Struct, eq=False, gc=False):
    """Pods p of workload w that are evicted together; `tier` is that of their queue."""

    pods: Sequence[int]
    w: int
    tier: int
    is_below: bool
    is_whole: bool
    lost: int


class Assignment(Struct, eq=False, gc=False):
    """A placement of the preemptor, and the nodes to which it is confined."""

    placement: Placement
    frame: NodeSet


@dataclass(slots=True, eq=False)
class Statement:
    """`touched` are changed nodes, in order, shared by all statements; `log` says how the steps of
    this one are undone. Attempts end in the reverse order of their steps.

    `assignments` are by uid, `units` by their first pod p, `moving` by p with the new placement
    once there is one. An operation that removes entries makes a new dict, and its undo restores the
    old one. `charged_to`: the solution is in the plan, so the queues of this request are charged
    for its placements.
    """

    session: Session
    pool: str
    candidates: Candidates
    touched: list[int]
    log: list[Step] = field(default_factory=list)
    assignments: dict[str, Assignment] = field(default_factory=dict)
    units: dict[int, EvictionUnit] = field(default_factory=dict)
    moving: dict[int, Placement | None] = field(default_factory=dict)
    charged_to: PreemptionRequest | None = None

    @property
    def placements(self) -> list[Placement]:
        """The preemptor's placements."""
        return [assignment.placement for assignment in self.assignments.values()]

    def leaving(self) -> Iterator[int]:
        """All pods p that are evicted or moved."""
        for unit in self.units.values():
            yield from unit.pods
        yield from self.moving

    def held_before(self, queue: Queue) -> Amounts:
        """What the queue held before the units were evicted."""
        candidates = self.candidates
        inside = [unit for unit in self.units.values() if queue in candidates.leaves[unit.w].chain]
        freed = sum_amounts(candidates.amounts_of(unit.pods) for unit in inside)
        return sum_amounts((frozen(queue.allocated), freed))

    def checkpoint(self) -> int:
        """A mark to roll back to."""
        return len(self.log)

    def rollback(self, mark: int) -> None:
        """Undo everything since `mark`, newest first."""
        if len(self.log) == mark:
            return
        self.session.sim.rollback(self.log[mark][0])
        while len(self.log) > mark:
            _, nodes, undo, args = self.log.pop()
            undo(self, *args)
            self.touched.extend(nodes)
        if self.charged_to:
            self.candidates.sync(self.charged_to.leaf.chain)

    def assign(self, pod: PodView, frame: NodeSet) -> bool:
        """Place the pod where it fits best later; False if it fits nowhere."""
        mark = self._mark()
        placement = self.session.places.place_pod(pod, self.pool, "later", frame)
        if placement is None:
            return False
        self._add_assignment(Assignment(placement, frame), mark)
        return True

    def assign_to(self, pod: PodView, ix: int, frame: NodeSet) -> None:
        """Place the pod on node `ix`, where it fits later."""
        mark = self._mark()
        placement = self.session.places.place_on(pod, ix, self.pool, "later")
        self._add_assignment(Assignment(placement, frame), mark)

    def reassign(self, pods: Sequence[PodView]) -> None:
        """Place all of the preemptor's pods again, as `allocate` would on what is free later; if
        that fails, they stay where they are."""
        mark = self.checkpoint()
        self.unassign({pod.uid for pod in pods})
        start = self._mark()
        placed = self.session.places.place_in(pods, self.pool, "later")
        if placed is None:
            self.rollback(mark)
            return
        by_uid = {placement.pod.uid: placement for placement in placed}
        for pod in pods:
            self._add_assignment(Assignment(by_uid[pod.uid], WHOLE_POOL), start)

    def unassign(self, uids: Collection[str]) -> list[Assignment]:
        """Remove the placements of these pods; returns them."""
        mark, before = self._mark(), self.assignments
        self.assignments = {uid: each for uid, each in before.items() if uid not in uids}
        taken = [each for uid, each in before.items() if uid in uids]
        ixs = [self.ix_of(each.placement.node) for each in taken]
        for ix, each in zip(ixs, taken, strict=True):
            self.session.sim.unhold(ix, each.placement.pod, each.placement.cards)
            gpu, cpu, memory = each.placement.amounts
            self._charge((-gpu, -cpu, -memory))
        self._note(mark, ixs, Statement._set_assignments, before)
        return taken

    def unassign_on(self, nodes: Collection[str]) -> list[Assignment]:
        """Remove the placements on these nodes; returns them."""
        here = [uid for uid, each in self.assignments.items() if each.placement.node in nodes]
        return self.unassign(set(here)) if here else []

    def evict(self, unit: EvictionUnit) -> None:
        """Evict the unit."""
        mark = self._mark()
        sim, candidates = self.session.sim, self.candidates
        for p in unit.pods:
            pod = candidates.pods[p]
            sim.evict(self.ix_of(pod.node), pod, pod.cards)
        sim.discharge(candidates.leaves[unit.w], candidates.amounts_of(unit.pods), is_np=False)
        self.units[unit.pods[0]] = unit
        self._mark_evicted(unit, is_evicted=True)
        self._note(mark, self.nodes_of(unit.w), Statement._undo_evict, unit)

    def keep(self, unit: EvictionUnit) -> None:
        """Take back the eviction of the unit, which keeps running."""
        mark, before = self._mark(), self.units
        sim, candidates = self.session.sim, self.candidates
        for p in unit.pods:
            pod = candidates.pods[p]
            sim.reinstate(self.ix_of(pod.node), pod, pod.cards)
        sim.charge(candidates.leaves[unit.w], candidates.amounts_of(unit.pods), is_np=False)
        self.units = {p: each for p, each in before.items() if each is not unit}
        self._mark_evicted(unit, is_evicted=False)
        self._note(mark, self.nodes_of(unit.w), Statement._undo_keep, unit, before)

    def displace(self, p: int) -> None:
        """Take the pod off its node, to be placed elsewhere."""
        mark = self._mark()
        pod = self.candidates.pods[p]
        ix = self.ix_of(pod.node)
        self.session.sim.evict(ix, pod, pod.cards)
        self.moving[p] = None
        self._mark_moving(p, is_moving=True)
        self._note(mark, (ix,), Statement._undo_displace, p)

    def relocate(self, p: int, wanted: frozenset[int]) -> bool:
        """Place a displaced pod elsewhere, on the nodes `wanted` (by ix) only if no other has room;
        False if it fits nowhere."""
        mark = self._mark()
        pod = self.candidates.pods[p]
        placement = self.session.places.place_pod(pod, self.pool, "later", avoided=wanted)
        if placement is None:
            return False
        self.moving[p] = placement
        self._note(mark, (self.ix_of(placement.node),), Statement._set_place, p, None)
        return True

    def cancel_move(self, p: int) -> None:
        """Return a displaced pod to its node and give up its new placement."""
        mark, before = self._mark(), self.moving
        sim, pod = self.session.sim, self.candidates.pods[p]
        ixs = [self.ix_of(pod.node)]
        placement = before[p]
        if placement is not None:
            ixs.append(self.ix_of(placement.node))
            sim.unhold(ixs[1], pod, placement.cards)
        sim.reinstate(ixs[0], pod, pod.cards)
        self.moving = {other: place for other, place in before.items() if other != p}
        self._mark_moving(p, is_moving=False)
        self._note(mark, ixs, Statement._undo_cancel_move, p, before)

    def is_over(self, ix: int) -> bool:
        """Whether the node would hold more than its capacity later."""
        return is_over(self.session.sim.later, ix)

    def cost(self) -> Cost:
        """What the whole statement costs, encoded as in the kernel."""
        units, candidates = self.units.values(), self.candidates
        tier = max((unit.tier for unit in units), default=0)
        is_below, is_whole = any(u.is_below for u in units), any(u.is_whole for u in units)
        lost = min(sum(unit.lost for unit in units), _MOST_LOST)
        moved = min(sum(candidates.lost[p] for p in self.moving), _MOST_LOST)
        rank = min(max((candidates.rank[unit.w] for unit in units), default=0), _MOST_RANK)
        moved_rank = max((candidates.rank[candidates.owner[p]] for p in self.moving), default=0)
        moved |= min(moved_rank, _MOST_RANK) << 52
        high = (tier << 61) | (rank << 54) | (is_below << 53) | (is_whole << 52) | lost
        leaving = list(self.leaving())
        n_pods = min(len(leaving), _MOST_PODS)
        age = max((candidates.age[candidates.owner[p]] for p in leaving), default=0)
        turn = min(max((candidates.turn[p] for p in leaving), default=0), _MOST_TURN)
        return high, moved, (n_pods << 40) | (age << 7) | turn

    def _charge(self, amounts: Amounts) -> None:
        """Charge the preemptor's queues, if the solution is in the plan."""
        if self.charged_to:
            leaf, workload = self.charged_to.leaf, self.charged_to.pending.workload
            self.session.sim.charge(leaf, amounts, is_np=not workload.is_preemptible)
            self.candidates.sync(leaf.chain)

    def _add_assignment(self, assignment: Assignment, mark: int) -> None:
        uid, ix = assignment.placement.pod.uid, self.ix_of(assignment.placement.node)
        # A request in MiB is a larger fraction of a small card than of a large one.
        self._charge(assignment.placement.amounts)
        self.assignments[uid] = assignment
        self._note(mark, (ix,), Statement._drop_assignment, uid)

    def _set_assignments(self, assignments: dict[str, Assignment]) -> None:
        self.assignments = assignments

    def _drop_assignment(self, uid: str) -> None:
        del self.assignments[uid]

    def _set_place(self, p: int, placement: Placement | None) -> None:
        self.moving[p] = placement

    def _undo_evict(self, unit: EvictionUnit) -> None:
        del self.units[unit.pods[0]]
        self._mark_evicted(unit, is_evicted=False)

    def _undo_keep(self, unit: EvictionUnit, units: dict[int, EvictionUnit]) -> None:
        self.units = units
        self._mark_evicted(unit, is_evicted=True)

    def _undo_displace(self, p: int) -> None:
        del self.moving[p]
        self._mark_moving(p, is_moving=False)

    def _undo_cancel_move(self, p: int, moving: dict[int, Placement | None]) -> None:
        self.moving = moving
        self._mark_moving(p, is_moving=True)

    def _mark_evicted(self, unit: EvictionUnit, *, is_evicted: bool) -> None:
        candidates = self.candidates
        (candidates.evict if is_evicted else candidates.keep)(unit.pods)
        if len(candidates.members[unit.w]) > 1:
            candidates.refresh(unit.w)
        candidates.sync(candidates.leaves[unit.w].chain)

    def _mark_moving(self, p: int, *, is_moving: bool) -> None:
        candidates = self.candidates
        candidates.move(p, is_moving=is_moving)
        candidates.refresh(candidates.owner[p])

    def _mark(self) -> int:
        return self.session.sim.checkpoint()

    def _note(self, mark: int, nodes: Sequence[int], undo: Callable[..., None], *args: Any) -> None:
        """Record how to undo a step on `nodes` that began at `mark` in the simulation."""
        self.touched.extend(nodes)
        self.log.append((mark, nodes, undo, args))

    def nodes_of(self, w: int) -> Sequence[int]:
        """The nodes of all pods of the workload: the cost of one pod depends on the others."""
        ix, pods = self.session.sim.later.cards.ix, self.candidates.pods
        return [ix[pods[p].node] for p in self.candidates.members[w]]

    def ix_of(self, node: str) -> int:
        """The node's row."""
        return self.session.sim.later.cards.ix[node]


def is_over(table: NodeTable, ix: int) -> bool:
    """Whether the node holds more than its capacity."""
    at = ix * table.cards.stride
    free = table.cards.card_free[at : at + table.cards.n_cards[ix]]
    counted = (table.free_counted[ix] or {}).values()
    host = table.free_cpu_milli[ix], table.free_memory_mib[ix], table.free_pods[ix]
    return any(left < 0 for left in (*free, *host, *counted))
