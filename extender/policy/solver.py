"""The search for victims: one claim, one rule, and a plan simulated whole before anybody leaves.

Pod after pod the claim takes what is free later, or else the node on which room costs least. Who
must leave there moves, where the rule lets it and there is another place, or stops. Only a plan
that holds together becomes part of the cycle's, else the simulation is rolled back.

A "no" is found before the search where sums, or the nodes one by one, show it, and is remembered by
rule and shape until something is released that was not used.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from extender.api.demand import Demand
from extender.api.reasons import Reason
from extender.kernels.sums import sum_idle, sum_units
from extender.policy.chunks import Pending
from extender.policy.fullness import Fullness
from extender.policy.herd import Herd
from extender.policy.layout import find_herd
from extender.policy.match import WHOLE_POOL, Frame
from extender.policy.offers import Offers
from extender.policy.plan import Eviction, Move, Placement
from extender.policy.queues import RESOURCES, Queue, add
from extender.policy.search import Search
from extender.policy.session import Session, State, placed_amounts
from extender.policy.shapes import Shape
from extender.policy.terms import Rule, Terms
from extender.policy.trial import Claim, Step, Trial, Unit, is_over
from extender.state.model import Amounts

#: How often all plans of a cycle are reviewed; more than twice is rare.
_MOST_PASSES: Final = 4

_OfferKey = tuple[bool, Demand, int, int]


@dataclass(slots=True)
class _Committed:
    """A plan that is part of the cycle's; `has_to_wait`: its places may not be free yet."""

    search: Search
    placements: list[Placement]
    has_to_wait: bool


@dataclass(slots=True)
class _Known:
    """What is known of a rule: its terms, without moves and with them, prices, and what failed."""

    terms: Terms
    moving: Terms
    offers: dict[_OfferKey, Offers] = field(default_factory=dict)
    failed: list[Shape] = field(default_factory=list)


class Solver:
    """The search in one node pool; all stages of a cycle share it.

    `givers` are queues other than the taker's that gave to the last plan that was committed.
    `committed` are all its plans; `is_anything_left_over` says that one of them frees more than it
    uses, and `has_new_plan` that one was made since they were reviewed.
    """

    def __init__(self, session: Session, pool: str) -> None:
        self.session = session
        self.pool = pool
        self.herd: Herd = find_herd(session, pool)
        self.touched: list[int] = []
        self.log: list[Step] = []
        self.fullness = Fullness(session, pool, self.touched, self.herd.shapes)
        self.givers: set[Queue] = set()
        self._known: dict[Rule, _Known] = {}
        # Shapes of the herd that have another place somewhere; the terms of all rules share it.
        self._moves = bytearray(len(self.herd.shapes))
        self._epoch = 0
        self._is_open = False
        self.committed: list[_Committed] = []
        self.is_anything_left_over = False
        self.has_new_plan = False
        self._waiting: dict[str, list[Search]] = {}

    def begin(self) -> None:
        """A stage begins: queues and places may have changed since the last."""
        self.herd.sync(self.herd.queues)
        for known in self._known.values():
            known.failed.clear()
        self.changed_prices()

    def solve(self, claim: Claim, rule: Rule) -> Search | None:
        """A plan that the simulation holds, or None and nothing held."""
        self._watch_reservation()
        known = self._known.get(rule) or self._learn(rule)
        for failed in known.failed:
            if any(shape.is_no_easier_than(failed) for shape in claim.shapes):
                return None
        can_move = rule.can_move and self._find_moves()
        if not can_move and not rule.can_stop:
            return None
        search, n_touched = Search(self, claim, rule, can_move=can_move), len(self.touched)
        if self._could(search) and search.run():
            if search.is_even:
                self.fullness.leave_unchanged(n_touched, claim.shapes[0].constraints)
            return search
        if claim.is_alike and not search.was_forbidden:
            known.failed.append(claim.shapes[0])
        return None

    def commit(self, search: Search) -> Pending | None:
        """Put the plan into the cycle's; returns what still waits of the workload."""
        session, herd, claim, trial = self.session, self.herd, search.claim, search.trial
        self.givers.clear()
        for unit in trial.units.values():
            self._evict(search, unit)
            self.givers.update(herd.leaves[unit.w].chain)
        self.givers.difference_update(claim.leaf.chain)
        for p, placement in trial.moving.items():
            assert placement is not None
            mover, note = (
                herd.workloads[herd.owner[p]].key,
                f"moved so that {claim.key} has a place",
            )
            session.move(Move(placement, mover, Reason.MOVED, claim.key, note))
        self._bar_elsewhere(trial)
        if claim.key in herd.by_key:
            herd.bar(herd.by_key[claim.key])
        has_to_wait = self._has_to_wait(claim, trial)
        state: State = "nominated" if has_to_wait else "reserved"
        placements, had = trial.placements, herd.had
        amounts = placed_amounts(placements)
        rest = session.admit(claim.pending, placements, self.pool, state, amounts)
        trial.is_charged = True
        self.committed.append(_Committed(search, placements, has_to_wait))
        self.has_new_plan = True
        herd.sync(claim.leaf.chain)
        for queue in claim.leaf.chain:
            at = 3 * herd.queue_ix[queue]
            for r, amount in enumerate(amounts):
                if amount:
                    # With what the taker holds here, nobody comes back beyond the limit.
                    had[at + r] = 0
        if not search.is_even and _has_left_over(trial):
            self.is_anything_left_over = True
            for known in self._known.values():
                known.failed.clear()
            session.places.forget_failures(self.pool)
        return rest

    def _bar_elsewhere(self, trial: Trial) -> None:
        """What gives in this pool gives nothing in others: each counts what is left of it alone."""
        if len(self.session.solvers) < 2:
            return
        givers = {self.herd.workloads[self.herd.owner[p]].key for p in trial.leaving()}
        for other in self.session.solvers.values():
            if other is not self:
                for key in givers & other.herd.by_key.keys():
                    other.herd.bar(other.herd.by_key[key])

    def review(self) -> bool:
        """Let those stay after all whom plans of the cycle do not need any more; returns whether
        anybody does."""
        is_any_spared = False
        pods = self.herd.pods
        self._join_plans()
        self._waiting = self._list_waiting()
        for each in self.committed:
            trial = each.search.trial
            before = {pods[p].uid for p in trial.leaving()}
            needless = each.search.review()
            spared = before - {pods[p].uid for p in trial.leaving()}
            self.session.spare(spared)
            is_any_spared = is_any_spared or bool(spared)
            for unit in needless:
                if trial.units.get(unit.pods[0]) is unit:
                    self._attribute(unit, trial)
        for each in self.committed:
            self._take_over(each)
        return is_any_spared

    def waiting_on(self, nodes: Iterable[str]) -> list[Search]:
        """Plans that wait for a place on any of the nodes, as they were when the review began."""
        return list(dict.fromkeys(s for node in nodes for s in self._waiting.get(node, ())))

    def _list_waiting(self) -> dict[str, list[Search]]:
        found: dict[str, list[Search]] = {}
        for each in self.committed:
            if each.has_to_wait:
                for node in {placement.node for placement in each.placements}:
                    found.setdefault(node, []).append(each.search)
        return found

    def _take_over(self, each: _Committed) -> None:
        """Say in the plan where the taker's places are now."""
        placements = each.search.trial.placements
        if placements != each.placements:
            self.session.replace(each.search.claim.key, each.placements, placements)
            each.placements = placements
            nodes = {placement.pod.uid: placement.node for placement in placements}
            each.search.claim.pending.nodes.update(nodes)

    def _join_plans(self) -> None:
        """Plans for one workload become one: their pods may change places with one another. What
        starts at once keeps its own."""
        by_key: dict[tuple[str, bool], _Committed] = {}
        for each in self.committed:
            first = by_key.setdefault((each.search.claim.key, each.has_to_wait), each)
            if first is not each:
                first.search.join(each.search)
                first.placements = [*first.placements, *each.placements]
        self.committed = list(by_key.values())

    def _attribute(self, unit: Unit, former: Trial) -> None:
        """The unit leaves for whom the rest of its workload does, if that is another."""
        for each in self.committed:
            trial = each.search.trial
            rest = next((u for u in trial.units.values() if u.w == unit.w and u.is_whole), None)
            if rest is not None and trial is not former:
                del former.units[unit.pods[0]]
                rest.pods = (*rest.pods, *unit.pods)
                rest.lost += unit.lost
                self.session.spare({self.herd.pods[p].uid for p in unit.pods})
                self._evict(each.search, unit)
                return

    def _evict(self, search: Search, unit: Unit) -> None:
        herd, rule, key = self.herd, search.rule, search.claim.key
        giver, note = herd.workloads[unit.w].key, rule.note(search.claim, herd.leaves[unit.w])
        for p in unit.pods:
            self.session.evict(Eviction(herd.pods[p], giver, rule.reason, key, note))

    def count_leaving(self) -> None:
        """Who is stopped still holds what he has: what may start now has to leave room for it."""
        for each in self.committed:
            for unit in each.search.trial.units.values():
                for queue in self.herd.leaves[unit.w].chain:
                    add(queue.leaving, self.herd.amounts_of(unit.pods))

    def terms(self, rule: Rule, *, with_moves: bool) -> Terms:
        """The rule's terms."""
        known = self._known[rule]
        return known.moving if with_moves else known.terms

    def offers(
        self, rule: Rule, shape: Shape, frame: Frame = WHOLE_POOL, *, with_moves: bool
    ) -> Offers:
        """Prices of room for such a pod, brought up to date."""
        known = self._known[rule]
        key = with_moves, shape.demand, id(shape.constraints), id(frame)
        offers = known.offers.get(key)
        if offers is None:
            matcher = self.session.places.matcher
            candidates = matcher.candidates(self.pool, shape.constraints, frame)
            terms, table = self.terms(rule, with_moves=with_moves), self.session.sim.later
            offers = known.offers[key] = Offers(table, self.herd, terms, shape.demand, candidates)
        offers.refresh(self.touched, self._epoch)
        return offers

    def changed_prices(self) -> None:
        """A plan was rolled back in which prices were worked out that hold no more."""
        self._epoch += 1
        self.fullness.forget()

    def _learn(self, rule: Rule) -> _Known:
        terms = rule.terms(self.herd)
        known = self._known[rule] = _Known(terms, replace(terms, moves=self._moves))
        return known

    def _find_moves(self) -> bool:
        """Whether any shape of the herd has another place somewhere; notes which have."""
        is_any = False
        for at, (demand, constraints) in enumerate(self.herd.shapes):
            can_move = not self.fullness.is_full(demand, constraints)
            is_any = is_any or can_move
            if self._moves[at] != can_move:
                self._moves[at] = can_move
                self._epoch += 1
        return is_any

    def _watch_reservation(self) -> None:
        """What is kept for somebody may count as free for the next workload, or not any more."""
        is_open = self.session.places.is_open(self.pool)
        if is_open or self._is_open:
            for known in self._known.values():
                known.failed.clear()
            self.changed_prices()
        self._is_open = is_open

    def _could(self, search: Search) -> bool:
        """The cheap no: whether there is enough in sum, and on the nodes one by one.

        Who may be stopped for one pod is seen node by node anyway.
        """
        claim, rule = search.claim, search.rule
        n_pods = len(claim.chunk)
        if n_pods == 1 and rule.can_stop:
            return True
        most = self._most_freed(self.terms(rule, with_moves=False))
        idle = array("q", bytes(24))
        sum_idle(self.session.sim.later, self._with_room(search), idle)
        # Idle instances are not summed up.
        counted = sum(pod.demand.counted_milli for pod in claim.chunk)
        need = claim.need[0] - counted, claim.need[1], claim.need[2]
        if any(need[r] > idle[r] + most[r] for r in RESOURCES):
            return False
        if n_pods == 1 or len(claim.shapes) > 1:
            return True
        offers = self.offers(rule, claim.shapes[0], with_moves=search.can_move)
        return offers.capacity(n_pods) >= n_pods

    def _with_room(self, search: Search) -> "array[int]":
        """All nodes whose room counts: those that the claim may use, or who is moved away."""
        matcher = self.session.places.matcher
        if search.can_move:
            return array("i", matcher.ready(self.pool))
        shapes = search.claim.shapes
        listed = [matcher.candidates(self.pool, shape.constraints) for shape in shapes]
        return listed[0] if len(listed) == 1 else array("i", sorted(set().union(*listed)))

    def _most_freed(self, terms: Terms) -> Amounts:
        """No more than this can be stopped on these terms, however it is done."""
        herd = self.herd
        if not any(terms.tiers):
            return 0, 0, 0
        total, largest = array("q", bytes(8 * len(herd.has))), array("q", bytes(8 * len(herd.has)))
        sum_units(herd, total, largest)
        return terms.most_freed(herd, total, largest)

    def _has_to_wait(self, claim: Claim, trial: Trial) -> bool:
        """Whether any place is, or may be, still held by somebody who leaves."""
        session, now = self.session, self.session.sim.now
        if trial.units or trial.moving or session.is_anybody_leaving():
            return True
        if any(is_over(now, now.cards.ix[place.node]) for place in trial.placements):
            return True
        amounts, workload = placed_amounts(trial.placements), claim.pending.workload
        return session.check_room(claim.leaf, workload, amounts, "now") is not None


def solver_of(session: Session, pool: str) -> Solver:
    """The pool's solver, ready for a stage that begins."""
    if pool not in session.solvers:
        session.solvers[pool] = Solver(session, pool)
    solver = session.solvers[pool]
    solver.begin()
    return solver


def review(session: Session, *, is_changed: bool = False) -> None:
    """Where a plan frees more than it uses, or may bring company, let those stay whom others do not
    need any more: once there are new plans, or something else `is_changed`."""
    solvers = list(session.solvers.values())
    is_any_new = is_changed or any(solver.has_new_plan for solver in solvers)
    for solver in solvers:
        solver.has_new_plan = False
    is_any_left_over = any(solver.is_anything_left_over for solver in solvers)
    if is_any_new and (is_any_left_over or session.places.beside):
        # Who stays may have made way for another who can stay then.
        for _ in range(_MOST_PASSES):
            if not sum(solver.review() for solver in solvers):
                return


def _has_left_over(trial: Trial) -> bool:
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
