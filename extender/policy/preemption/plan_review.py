"""Plans that are part of the cycle's: what they put into it, and their review once all are made.

Where one frees more than it uses, others may not need all their victims any more: who can stay then
stays, and who waits may change places for that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from extender.api.reasons import Reason
from extender.policy.plan import Eviction, Move, Placement, State
from extender.policy.preemption.candidates import Herd
from extender.policy.preemption.solution import Solution
from extender.policy.preemption.statement import Claim, Trial, Unit, is_over
from extender.policy.queues.tree import Queue, add, subtract
from extender.policy.session import Session, placed_amounts
from extender.policy.workloads.pending import Pending
from extender.state.model import Amounts, WorkloadView

#: How often all plans of a cycle are reviewed; more than twice is rare.
_MOST_PASSES: Final = 4


@dataclass(slots=True)
class _Committed:
    """A solution that is part of the plan, and the places that it says are the preemptor's."""

    solution: Solution
    placements: list[Placement]


class Commitments:
    """All plans of one pool.

    `givers` are queues other than the taker's that gave to the last one; `is_anything_left_over`
    says that one of them frees more than it uses, and `has_new_plan` that one was made since they
    were reviewed.
    """

    def __init__(self, session: Session, pool: str, herd: Herd) -> None:
        self.session = session
        self.pool = pool
        self.herd = herd
        self.givers: set[Queue] = set()
        self.is_anything_left_over = False
        self.has_new_plan = False
        self._all: list[_Committed] = []
        # What of it all is counted as leaving, and whether that is as it is now.
        self._counted: list[tuple[Queue, Amounts]] = []
        self._is_counted = True

    def add(self, solution: Solution) -> Pending | None:
        """Put the plan into the cycle's; returns what still waits of the workload."""
        session, herd, claim, trial = self.session, self.herd, solution.claim, solution.trial
        self.givers.clear()
        for unit in trial.units.values():
            self._evict(solution, unit)
            self.givers.update(herd.leaves[unit.w].chain)
        self.givers.difference_update(claim.leaf.chain)
        for p, placement in trial.moving.items():
            assert placement is not None
            mover = herd.workloads[herd.owner[p]].key
            session.move(Move(placement, mover, Reason.MOVED, claim.key, ""))
        if claim.key in herd.by_key:
            herd.bar(herd.by_key[claim.key])
        has_to_wait = self._has_to_wait(claim, trial)
        state: State = "nominated" if has_to_wait else "reserved"
        placements, had = trial.placements, herd.had
        amounts = placed_amounts(placements)
        rest = session.admit(claim.pending, placements, self.pool, state, amounts)
        trial.is_charged = True
        self._all.append(_Committed(solution, placements))
        self.has_new_plan = True
        self._is_counted = False
        herd.sync(claim.leaf.chain)
        for queue in claim.leaf.chain:
            at = 3 * herd.queue_ix[queue]
            for r, amount in enumerate(amounts):
                if amount:
                    # With what the taker holds here, nobody comes back beyond the limit.
                    had[at + r] = 0
        return rest

    def evicted_last(self) -> list[WorkloadView]:
        """The workloads of which the last plan evicts anything."""
        units = self._all[-1].solution.trial.units.values() if self._all else ()
        return [self.herd.workloads[unit.w] for unit in units]

    def review(self) -> bool:
        """Let those stay after all whom plans of the cycle do not need any more; returns whether
        anybody does."""
        is_any_spared, self._is_counted = False, False
        pods = self.herd.pods
        for each in self._all:
            trial = each.solution.trial
            before = {pods[p].uid for p in trial.leaving()}
            each.solution.review()
            spared = before - {pods[p].uid for p in trial.leaving()}
            self.session.spare(spared)
            is_any_spared = is_any_spared or bool(spared)
        for each in self._all:
            self._take_over(each)
        return is_any_spared

    def _take_over(self, each: _Committed) -> None:
        """Say in the plan where the taker's places are now."""
        placements = each.solution.trial.placements
        if placements != each.placements:
            self.session.replace(each.solution.claim.key, each.placements, placements)
            each.placements = placements
            nodes = {placement.pod.uid: placement.node for placement in placements}
            each.solution.claim.pending.nodes.update(nodes)

    def _evict(self, solution: Solution, unit: Unit) -> None:
        herd, rule, key = self.herd, solution.rule, solution.claim.key
        giver, note = herd.workloads[unit.w].key, rule.explain(solution.claim, herd.leaves[unit.w])
        for p in unit.pods:
            self.session.evict(Eviction(herd.pods[p], giver, rule.reason, key, note))

    def count_leaving(self) -> None:
        """Who is stopped still holds what he has: what may start now has to leave room for it."""
        if self._is_counted:
            return
        for queue, amounts in self._counted:
            subtract(queue.leaving, amounts)
        self._counted = [
            (queue, self.herd.amounts_of(unit.pods))
            for each in self._all
            for unit in each.solution.trial.units.values()
            for queue in self.herd.leaves[unit.w].chain
        ]
        for queue, amounts in self._counted:
            add(queue.leaving, amounts)
        self._is_counted = True

    def _has_to_wait(self, claim: Claim, trial: Trial) -> bool:
        """Whether any place is, or may be, still held by somebody who leaves."""
        session, now = self.session, self.session.sim.now
        if trial.units or trial.moving or session.is_anybody_leaving():
            return True
        if any(is_over(now, now.cards.ix[place.node]) for place in trial.placements):
            return True
        amounts, workload = placed_amounts(trial.placements), claim.pending.workload
        return session.check_room(claim.leaf, workload, amounts, "now") is not None


def review(session: Session, pools: Sequence[Commitments], *, is_changed: bool = False) -> None:
    """Where a plan frees more than it uses, or may bring company, let those stay whom others do not
    need any more: once there are new plans, or something else `is_changed`."""
    is_any_new = is_changed or any(pool.has_new_plan for pool in pools)
    for pool in pools:
        pool.has_new_plan = False
    is_any_left_over = any(pool.is_anything_left_over for pool in pools)
    if is_any_new and (is_any_left_over or session.places.pod_affinity):
        # Who stays may have made way for another who can stay then.
        with session.places.pod_affinity.once_all_have_left():
            for _ in range(_MOST_PASSES):
                if not sum(pool.review() for pool in pools):
                    return


def has_left_over(trial: Trial) -> bool:
    """Whether more was freed on some node than is used there: others may need fewer victims."""
    balance: dict[str, list[int]] = {}
    pods, amounts_of = trial.herd.pods, trial.herd.amounts_of
    for p in trial.leaving():
        _add(balance, pods[p].node, amounts_of((p,)), 1)
    for placement in (*trial.placements, *trial.moving.values()):
        if placement is not None and placement.node in balance:
            _add(balance, placement.node, placement.amounts, -1)
    return any(max(left) > 0 for left in balance.values())


def _add(balance: dict[str, list[int]], node: str, amounts: Amounts, sign: int) -> None:
    left = balance.setdefault(node, [0, 0, 0, 0])
    left[0] += sign * amounts[0]
    left[1] += sign * amounts[1]
    left[2] += sign * amounts[2]
    left[3] += sign
