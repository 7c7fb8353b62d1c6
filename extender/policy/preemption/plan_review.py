"""The solutions that are part of a cycle's plan, and their review.

A solution may free more than it uses, so that another one needs fewer victims. The review keeps
those victims running, and may place a preemptor elsewhere for that.
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

#: Passes over all solutions of a cycle; more than two are rare.
_MOST_PASSES: Final = 4


@dataclass(slots=True)
class _Committed:
    """A solution in the plan, with the placements that the plan has for the preemptor.
    `may_give_way`: they may change, since they are only nominated."""

    solution: Solution
    placements: list[Placement]
    may_give_way: bool


class CommittedSolutions:
    """The solutions of one pool that are in the plan.

    `victim_queues` are the queues, other than the preemptor's, from which the last one evicts.
    `is_anything_left_over`: one of them frees more than it uses. `has_new_plan`: one was added
    since the last review.
    """

    def __init__(self, session: Session, pool: str, candidates: Candidates) -> None:
        self.session = session
        self.pool = pool
        self.candidates = candidates
        self.victim_queues: set[Queue] = set()
        self.is_anything_left_over = False
        self.has_new_plan = False
        self._all: list[_Committed] = []
        # What is counted in `Queue.leaving`, and whether that is up to date.
        self._counted: list[tuple[Queue, Amounts]] = []
        self._is_counted = True

    def add(self, solution: Solution) -> Pending | None:
        """Add the solution to the plan; returns what is still pending of the workload."""
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
            session.draft.move(Move(placement, mover, Reason.MOVED, request.key))
        candidates.bar_all((request.key,))
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
                    # Victims kept beside the preemptor have to be within the limit itself.
                    had[at + r] = 0
        return rest

    def evicted_last(self) -> list[WorkloadView]:
        """The workloads from which the last solution evicts pods."""
        units = self._all[-1].solution.statement.units.values() if self._all else ()
        return [self.candidates.workloads[unit.w] for unit in units]

    def review(self) -> bool:
        """Keep the victims that no solution needs any more; returns whether there is any."""
        is_any_kept, self._is_counted = False, False
        pods, by_node = self.candidates.pods, self._by_node()
        for each in self._all:
            statement = each.solution.statement
            before = {pods[p].uid: pods[p].node for p in statement.leaving()}
            beside = dict.fromkeys(s for node in before.values() for s in by_node.get(node, ()))
            each.solution.review([other for other in beside if other is not each.solution])
            kept = before.keys() - {pods[p].uid for p in statement.leaving()}
            self.session.draft.keep(kept)
            is_any_kept = is_any_kept or bool(kept)
        for each in self._all:
            self._update_placements(each)
        return is_any_kept

    def _by_node(self) -> dict[str, list[Solution]]:
        """The solutions with placements on each node that may change."""
        found: dict[str, list[Solution]] = {}
        for each in self._all:
            nodes = {placement.node for placement in each.placements if each.may_give_way}
            for node in nodes:
                found.setdefault(node, []).append(each.solution)
        return found

    def _update_placements(self, each: _Committed) -> None:
        """Update the plan with the preemptor's current placements."""
        placements = each.solution.statement.placements
        if placements != each.placements:
            self.session.draft.replace(each.solution.request.key, each.placements, placements)
            each.placements = placements
            nodes = {placement.pod.uid: placement.node for placement in placements}
            each.solution.request.pending.nodes.update(nodes)

    def _evict(self, solution: Solution, unit: EvictionUnit) -> None:
        candidates, rule, request = self.candidates, solution.rule, solution.request
        victim = candidates.workloads[unit.w].key
        leaf = candidates.leaves[unit.w]
        reason, note = rule.reason_for(leaf), rule.explain(request, leaf)
        for p in unit.pods:
            pod = candidates.pods[p]
            self.session.draft.evict(Eviction(pod, victim, reason, request.key, note))

    def count_leaving(self) -> None:
        """Count evicted pods in `Queue.leaving`: work that starts now must leave room for them."""
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
        """Whether an evicted pod still holds a placement, or may hold one."""
        session, now = self.session, self.session.sim.now
        if statement.units or statement.moving or session.draft.has_leaving_pods():
            return True
        if any(is_over(now, now.cards.ix[place.node]) for place in statement.placements):
            return True
        amounts, workload = placed_amounts(statement.placements), request.pending.workload
        return check_room(request.leaf, workload, amounts, is_now=True) is not None


def review(
    session: Session, pools: Sequence[CommittedSolutions], *, is_changed: bool = False
) -> None:
    """Keep the victims that no solution needs any more, if solutions are new or anything else
    `is_changed`. Only a solution that frees more than it uses, or pod affinity, allows that."""
    is_any_new = is_changed or any(pool.has_new_plan for pool in pools)
    for pool in pools:
        pool.has_new_plan = False
    is_any_left_over = any(pool.is_anything_left_over for pool in pools)
    if is_any_new and (is_any_left_over or session.places.pod_affinity):
        # A victim that is not moved frees its new placement, so that another one may stay.
        with session.places.pod_affinity.after_evictions():
            for _ in range(_MOST_PASSES):
                if not sum(pool.review() for pool in pools):
                    return


def has_left_over(statement: Statement) -> bool:
    """Whether more is freed on some node than is used there: others may need fewer victims."""
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
