"""One plan in the making: who is placed, who is stopped, who is moved, and the way back.

Everything is done in the session's simulation and in the herd at once, and can be rolled back to
any checkpoint. A pod that is moved leaves its place and gets another; until it has one it is on the
way. Stopped pods are taken off their queue, moved ones are not.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import Struct

from extender.policy.placement.node_filter import WHOLE_POOL, NodeSet
from extender.policy.plan import Placement
from extender.policy.preemption.candidates import Herd
from extender.policy.preemption.node_costs import Price
from extender.policy.queues.tree import Queue, frozen, sum_amounts
from extender.policy.session import Session
from extender.policy.workloads.pending import Pending
from extender.policy.workloads.pod_classes import Shape, placing_orders
from extender.state.model import Amounts, PodView
from extender.state.nodes import NodeTable

#: Where the simulation was, nodes, and what undoes the rest.
Step = tuple[int, Sequence[int], Callable[..., None], tuple[Any, ...]]

#: As in `costs.pxd`.
_MOST_LOST: Final = (1 << 52) - 1
_MOST_RANK: Final = (1 << 7) - 1


class Claim(Struct, eq=False, gc=False):
    """Somebody who takes: a chunk of a workload in queue `leaf`, and what it needs.

    `is_near`: its groups ask for nearness. `is_alike`: one of its pods is as good as another,
    wherever it is.
    """

    leaf: Queue
    pending: Pending
    chunk: Sequence[PodView]
    need: Amounts
    shapes: Sequence[Shape]
    is_alike: bool
    is_near: bool

    @property
    def key(self) -> str:
        """The workload's key."""
        return self.pending.workload.key


class Unit(Struct, eq=False, gc=False):
    """Pods p of workload w that are stopped together; `tier` is that of their queue."""

    pods: Sequence[int]
    w: int
    tier: int
    is_below: bool
    is_whole: bool
    lost: int


class Seat(Struct, eq=False, gc=False):
    """A place of the taker, and where it may be."""

    placement: Placement
    frame: NodeSet


@dataclass(slots=True, eq=False)
class Trial:
    """`touched` are nodes on which anything changed, in order, which the caller keeps for all
    trials; `log` says how the steps of this one are undone. Trials end in the reverse order of
    their steps.

    `seats` are by uid, `units` by their first pod p, `moving` by p with the new place where one is
    found. `is_for_limits`: some are stopped so that a queue stays within its limit.
    `is_charged`: the plan is part of the cycle's, so the taker's queues hold what its places do.
    """

    session: Session
    pool: str
    herd: Herd
    touched: list[int]
    claim: Claim
    log: list[Step] = field(default_factory=list)
    seats: dict[str, Seat] = field(default_factory=dict)
    units: dict[int, Unit] = field(default_factory=dict)
    moving: dict[int, Placement | None] = field(default_factory=dict)
    is_for_limits: bool = False
    is_charged: bool = False

    @property
    def placements(self) -> list[Placement]:
        """The taker's places."""
        return [seat.placement for seat in self.seats.values()]

    def leaving(self) -> Iterator[int]:
        """All pods p that leave their places."""
        for unit in self.units.values():
            yield from unit.pods
        yield from self.moving

    def given(self) -> Amounts:
        """What the units held together."""
        herd = self.herd
        return sum_amounts([herd.amounts_of(unit.pods) for unit in self.units.values()])

    def held_before(self, queue: Queue) -> Amounts:
        """What the queue held before the units were stopped."""
        herd = self.herd
        inside = [unit for unit in self.units.values() if queue in herd.leaves[unit.w].chain]
        given = sum_amounts(herd.amounts_of(unit.pods) for unit in inside)
        return sum_amounts((frozen(queue.allocated), given))

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

    def seat(self, pod: PodView, frame: NodeSet) -> bool:
        """Give the pod the best place that is free later; False where none is."""
        mark = self._mark()
        placement = self.session.places.place_pod(pod, self.pool, "later", frame)
        if placement is None:
            return False
        self._take_seat(Seat(placement, frame), mark)
        return True

    def seat_all(self, pods: Sequence[PodView], frame: NodeSet) -> bool:
        """The same for all of them, or none."""
        mark = self.checkpoint()
        for in_order in placing_orders(pods):
            if all(self.seat(pod, frame) for pod in in_order):
                return True
            self.rollback(mark)
        return False

    def seat_on(self, pod: PodView, ix: int, frame: NodeSet) -> None:
        """Give the pod a place on node `ix`, which has it later."""
        mark = self._mark()
        placement = self.session.places.place_on(pod, ix, self.pool, "later")
        self._take_seat(Seat(placement, frame), mark)

    def seat_again(self, pods: Sequence[PodView]) -> bool:
        """Give all of the taker's pods new places, as `allocate` would in what is free later."""
        mark = self.checkpoint()
        for pod in pods:
            self.unseat(pod.uid)
        start = self._mark()
        placed = self.session.places.place_in(pods, self.pool, "later")
        if placed is None:
            self.rollback(mark)
            return False
        by_uid = {placement.pod.uid: placement for placement in placed}
        for pod in pods:
            self._take_seat(Seat(by_uid[pod.uid], WHOLE_POOL), start)
        return True

    def unseat(self, uid: str) -> Seat:
        """Take a place back; returns it."""
        mark = self._mark()
        seat = self.seats.pop(uid)
        ix = self.ix_of(seat.placement.node)
        self.session.sim.unhold(ix, seat.placement.pod, seat.placement.cards)
        if self.is_charged:
            gpu, cpu, memory = seat.placement.amounts
            self._charge(ix, (-gpu, -cpu, -memory))
        self._note(mark, (ix,), Trial._put_seat, uid, seat)
        return seat

    def stop(self, unit: Unit) -> None:
        """The unit is stopped."""
        mark = self._mark()
        sim, herd = self.session.sim, self.herd
        for p in unit.pods:
            pod = herd.pods[p]
            sim.evict(self.ix_of(pod.node), pod, pod.cards)
        sim.discharge(herd.leaves[unit.w], herd.amounts_of(unit.pods), is_np=False)
        self._mark_stopped(unit, True)
        self._note(mark, self._nodes_of(unit.w), Trial._mark_stopped, unit, False)

    def spare(self, unit: Unit) -> None:
        """The unit, which was stopped, stays after all."""
        mark = self._mark()
        sim, herd = self.session.sim, self.herd
        for p in unit.pods:
            pod = herd.pods[p]
            sim.reinstate(self.ix_of(pod.node), pod, pod.cards)
        sim.charge(herd.leaves[unit.w], herd.amounts_of(unit.pods), is_np=False)
        self._mark_stopped(unit, False)
        self._note(mark, self._nodes_of(unit.w), Trial._mark_stopped, unit, True)

    def displace(self, p: int) -> None:
        """The pod leaves its place for another one, which is yet to be found."""
        mark = self._mark()
        pod = self.herd.pods[p]
        ix = self.ix_of(pod.node)
        self.session.sim.evict(ix, pod, pod.cards)
        self._mark_moving(p, True)
        self._note(mark, (ix,), Trial._mark_moving, p, False)

    def resettle(self, p: int) -> bool:
        """Find a new place for a displaced pod; False where there is none."""
        mark = self._mark()
        pod = self.herd.pods[p]
        placement = self.session.places.place_pod(pod, self.pool, "later", WHOLE_POOL)
        if placement is None:
            return False
        self.moving[p] = placement
        self._note(mark, (self.ix_of(placement.node),), Trial._set_place, p, None)
        return True

    def restore(self, p: int) -> None:
        """A displaced pod goes back to its old place; the new one is given up."""
        mark = self._mark()
        sim, pod = self.session.sim, self.herd.pods[p]
        ixs = [self.ix_of(pod.node)]
        placement = self.moving[p]
        if placement is not None:
            ixs.append(self.ix_of(placement.node))
            sim.unhold(ixs[1], pod, placement.cards)
        sim.reinstate(ixs[0], pod, pod.cards)
        self._mark_moving(p, False)

        self._note(mark, ixs, Trial._displace_again, p, placement)

    def is_over(self, ix: int) -> bool:
        """Whether the node would hold more than it has, later."""
        return is_over(self.session.sim.later, ix)

    def price(self) -> Price:
        """What all of it costs, as the kernel has it."""
        units, herd = self.units.values(), self.herd
        tier = max((unit.tier for unit in units), default=0)
        is_below, is_whole = any(u.is_below for u in units), any(u.is_whole for u in units)
        lost = min(sum(unit.lost for unit in units), _MOST_LOST)
        moved = min(sum(herd.lost[p] for p in self.moving), _MOST_LOST)
        rank = min(max((herd.rank[unit.w] for unit in units), default=0), _MOST_RANK)
        moved_rank = max((herd.rank[herd.owner[p]] for p in self.moving), default=0)
        moved |= min(moved_rank, _MOST_RANK) << 52
        high = (tier << 61) | (rank << 54) | (is_below << 53) | (is_whole << 52) | lost
        age = max((herd.age[herd.owner[p]] for p in self.leaving()), default=0)
        n_pods = sum(len(unit.pods) for unit in units) + len(self.moving)
        return high, moved, (n_pods << 40) | age

    def _charge(self, ix: int, amounts: Amounts) -> None:
        """The taker holds so much more on node `ix`."""
        session, workload = self.session, self.claim.pending.workload
        leaf = session.queue_of(workload, session.snapshot.nodes.pool[ix])
        session.sim.charge(leaf, amounts, is_np=not workload.is_preemptible)

    def _take_seat(self, seat: Seat, mark: int) -> None:
        uid, ix = seat.placement.pod.uid, self.ix_of(seat.placement.node)
        if self.is_charged:
            # So much memory is more of a small card than of a large one.
            self._charge(ix, seat.placement.amounts)
        self.seats[uid] = seat
        self._note(mark, (ix,), Trial._drop_seat, uid)

    def _put_seat(self, uid: str, seat: Seat) -> None:
        self.seats[uid] = seat

    def _set_place(self, p: int, placement: Placement | None) -> None:
        self.moving[p] = placement

    def _displace_again(self, p: int, placement: Placement | None) -> None:
        self._mark_moving(p, True)
        self.moving[p] = placement

    def _drop_seat(self, uid: str) -> None:
        del self.seats[uid]

    def _mark_stopped(self, unit: Unit, is_stopped: bool) -> None:
        herd = self.herd
        if is_stopped:
            self.units[unit.pods[0]] = unit
            herd.stop(unit.pods)
        else:
            del self.units[unit.pods[0]]
            herd.spare(unit.pods)
        if len(herd.members[unit.w]) > 1:
            herd.refresh(unit.w)
        herd.sync(herd.leaves[unit.w].chain)

    def _mark_moving(self, p: int, is_moving: bool) -> None:
        herd = self.herd
        if is_moving:
            self.moving[p] = None
        else:
            del self.moving[p]
        herd.move(p, is_moving=is_moving)
        herd.refresh(herd.owner[p])

    def _mark(self) -> int:
        return self.session.sim.checkpoint()

    def _note(self, mark: int, nodes: Sequence[int], undo: Callable[..., None], *args: Any) -> None:
        """Remember how to undo a step on `nodes` that began at `mark` in the simulation."""
        self.touched.extend(nodes)
        self.log.append((mark, nodes, undo, args))

    def _nodes_of(self, w: int) -> Sequence[int]:
        """Nodes of all pods of the workload: what one of them costs depends on the others."""
        ix, pods = self.session.sim.later.cards.ix, self.herd.pods
        return [ix[pods[p].node] for p in self.herd.members[w]]

    def ix_of(self, node: str) -> int:
        """The node's row."""
        return self.session.sim.later.cards.ix[node]


def is_over(table: NodeTable, ix: int) -> bool:
    """Whether the node holds more than it has."""
    at = ix * table.cards.stride
    free = table.cards.card_free[at : at + table.cards.n_cards[ix]]
    counted = (table.free_counted[ix] or {}).values()
    host = table.free_cpu_milli[ix], table.free_memory_mib[ix], table.free_pods[ix]
    return any(left < 0 for left in (*free, *host, *counted))
