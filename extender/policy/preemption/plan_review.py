"""The solutions of a cycle: what they put into the plan, and their review.

A solution may free more than it uses, so that another one needs fewer victims. The review gives
those victims back, and may change the places of a preemptor for that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from extender.api.reasons import Reason
from extender.policy.plan import Eviction, Move, Placement, State
from extender.policy.preemption.candidates import Candidates
from extender.policy.preemption.solution import Solution
from extender.policy.preemption.statement import EvictionUnit, PreemptionRequest, Statement, is_over
from extender.policy.queues.queue import Queue, add, subtract
from extender.policy.queues.room import check_room
from extender.policy.session import Session, placed_amounts
from extender.policy.workloads.pending import Pending
from extender.state.model import Amounts, WorkloadView

#: How often all plans of a cycle are reviewed; more than twice is rare.
_MOST_PASSES: Final = 4


@dataclass(slots=True)
class _Committed:
    """A solution that is part of the plan, and the places that it says are the preemptor's.
    `may_give_way`: these may change, since the preemptor waits for them anyway."""

    solution: Solution
    placements: list[Placement]
    may_give_way: bool


class CommittedSolutions:
    """All plans of one pool.

    `victim_queues` are queues other than the preemptor's that gave to the last one;
    `is_anything_left_over` says that one of them frees more than it uses, and `has_new_plan` that
    one was made since they were reviewed.
    """

    def __init__(self, session: Session, pool: str, candidates: Candidates) -> None:
        self.session = session
        self.pool = pool
        self.candidates = candidates
        self.victim_queues: set[Queue] = set()
        self.is_anything_left_over = False
        self.has_new_plan = False
        self._all: list[_Committed] = []
        # What of it all is counted as leaving, and whether that is as it is now.
        self._counted: list[tuple[Queue, Amounts]] = []
        self._is_counted = True

    def add(self, solution: Solution) -> Pending | None:
        """Put the plan into the cycle's; returns what still waits of the workload."""
        session, candidates, request, statement = (
            self.session,
            self.candidates,
            solution.request,
            solution.statement,
        )
        self.victim_queues.clear()
        for unit in statement.units.values():
            self._evict(solution, unit)
            self.victim_queues.update(candidates.leaves[unit.w].chain)
        self.victim_queues.difference_update(request.leaf.chain)
        for p, placement in statement.moving.items():
            assert placement is not None
            mover = candidates.workloads[candidates.owner[p]].key
            session.move(Move(placement, mover, Reason.MOVED, request.key, ""))
        if request.key in candidates.by_key:
            candidates.bar(candidates.by_key[request.key])
        has_to_wait = self._has_to_wait(request, statement)
        state: State = "nominated" if has_to_wait else "reserved"
        placements, had = statement.placements, candidates.had
        amounts = placed_amounts(placements)
        rest = session.admit(request.pending, placements, self.pool, state, amounts)
        statement.charged_to = request
        self._all.append(_Committed(solution, placements, may_give_way=has_to_wait))
        self.has_new_plan = True
        self._is_counted = False
        candidates.sync(request.leaf.chain)
        for queue in request.leaf.chain:
            at = 3 * candidates.queue_ix[queue]
            for r, amount in enumerate(amounts):
                if amount:
                    # With what the preemptor holds here, no victim comes back beyond the limit.
                    had[at + r] = 0
        return rest

    def evicted_last(self) -> list[WorkloadView]:
        """The workloads of which the last plan evicts anything."""
        units = self._all[-1].solution.statement.units.values() if self._all else ()
        return [self.candidates.workloads[unit.w] for unit in units]

    def review(self) -> bool:
        """Give back victims that no solution of the cycle needs any more; returns whether any
        is."""
        is_any_kept, self._is_counted = False, False
        pods, by_node = self.candidates.pods, self._by_node()
        for each in self._all:
            statement = each.solution.statement
            before = {pods[p].uid: pods[p].node for p in statement.leaving()}
            beside = dict.fromkeys(s for node in before.values() for s in by_node.get(node, ()))
            each.solution.review([other for other in beside if other is not each.solution])
            kept = before.keys() - {pods[p].uid for p in statement.leaving()}
            self.session.keep(kept)
            is_any_kept = is_any_kept or bool(kept)
        for each in self._all:
            self._take_over(each)
        return is_any_kept

    def _by_node(self) -> dict[str, list[Solution]]:
        """The solutions that place anything on each node, and may place it elsewhere."""
        found: dict[str, list[Solution]] = {}
        for each in self._all:
            nodes = {placement.node for placement in each.placements if each.may_give_way}
            for node in nodes:
                found.setdefault(node, []).append(each.solution)
        return found

    def _take_over(self, each: _Committed) -> None:
        """Say in the plan where the preemptor's places are now."""
        placements = each.solution.statement.placements
        if placements != each.placements:
            self.session.replace(each.solution.request.key, each.placements, placements)
            each.placements = placements
            nodes = {placement.pod.uid: placement.node for placement in placements}
            each.solution.request.pending.nodes.update(nodes)

    def _evict(self, solution: Solution, unit: EvictionUnit) -> None:
        candidates, rule, request = self.candidates, solution.rule, solution.request
        victim = candidates.workloads[unit.w].key
        note = rule.explain(request, candidates.leaves[unit.w])
        for p in unit.pods:
            pod = candidates.pods[p]
            self.session.evict(Eviction(pod, victim, rule.reason, request.key, note))

    def count_leaving(self) -> None:
        """An evicted pod still holds its place: what starts now has to leave room for it."""
        if self._is_counted:
            return
        for queue, amounts in self._counted:
            subtract(queue.leaving, amounts)
        self._counted = [
            (queue, self.candidates.amounts_of(unit.pods))
            for each in self._all
            for unit in each.solution.statement.units.values()
            for queue in self.candidates.leaves[unit.w].chain
        ]
        for queue, amounts in self._counted:
            add(queue.leaving, amounts)
        self._is_counted = True

    def _has_to_wait(self, request: PreemptionRequest, statement: Statement) -> bool:
        """Whether any place is, or may be, still held by a pod that leaves."""
        session, now = self.session, self.session.sim.now
        if statement.units or statement.moving or session.has_leaving_pods():
            return True
        if any(is_over(now, now.cards.ix[place.node]) for place in statement.placements):
            return True
        amounts, workload = placed_amounts(statement.placements), request.pending.workload
        return check_room(request.leaf, workload, amounts, is_now=True) is not None


def review(
    session: Session, pools: Sequence[CommittedSolutions], *, is_changed: bool = False
) -> None:
    """Where a plan frees more than it uses, or may place peers, keep the victims that no solution
    needs any more: once there are new plans, or something else `is_changed`."""
    is_any_new = is_changed or any(pool.has_new_plan for pool in pools)
    for pool in pools:
        pool.has_new_plan = False
    is_any_left_over = any(pool.is_anything_left_over for pool in pools)
    if is_any_new and (is_any_left_over or session.places.pod_affinity):
        # A victim that stays may release a place at which another one can stay.
        with session.places.pod_affinity.once_all_have_left():
            for _ in range(_MOST_PASSES):
                if not sum(pool.review() for pool in pools):
                    return


def has_left_over(statement: Statement) -> bool:
    """Whether more was freed on some node than is used there: others may need fewer victims."""
    balance: dict[str, list[int]] = {}
    pods, amounts_of = statement.candidates.pods, statement.candidates.amounts_of
    for p in statement.leaving():
        _add(balance, pods[p].node, amounts_of((p,)), 1)
    for placement in (*statement.placements, *statement.moving.values()):
        if placement is not None and placement.node in balance:
            _add(balance, placement.node, placement.amounts, -1)
    return any(max(left) > 0 for left in balance.values())


def _add(balance: dict[str, list[int]], node: str, amounts: Amounts, sign: int) -> None:
    left = balance.setdefault(node, [0, 0, 0, 0])
    left[0] += sign * amounts[0]
    left[1] += sign * amounts[1]
    left[2] += sign * amounts[2]
    left[3] += sign
