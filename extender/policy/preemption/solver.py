"""The search for victims: one claim, one rule, and a plan simulated whole before anybody leaves.

Pod after pod the claim takes what is free later, or else the node on which room costs least. Who
must leave there moves, where the rule lets it and there is another place, or stops. Only a plan
that holds together becomes part of the cycle's, else the simulation is rolled back.

A "no" is found before the search where sums, or the nodes one by one, show it, and is remembered by
rule and shape until something is released that was not used.
"""

from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from extender.api.demand import Demand
from extender.kernels.sums import sum_idle, sum_units
from extender.policy.placement.no_fit import Fullness
from extender.policy.placement.node_filter import WHOLE_POOL, Frame
from extender.policy.preemption.candidate_table import find_herd
from extender.policy.preemption.candidates import Herd
from extender.policy.preemption.eligibility import Rule, Terms
from extender.policy.preemption.node_costs import Offers
from extender.policy.preemption.plan_review import Commitments, has_left_over
from extender.policy.preemption.search import Search
from extender.policy.preemption.statement import Claim, Step
from extender.policy.queues.tree import RESOURCES
from extender.policy.session import Session
from extender.policy.workloads.pending import Pending
from extender.policy.workloads.pod_classes import Shape
from extender.state.model import Amounts

#: How many plans of a stage are made again elsewhere because the rule did not allow them.
_MOST_RETRIES: Final = 64

_OfferKey = tuple[bool, Demand, int, int]


@dataclass(slots=True)
class _Known:
    """What is known of a rule: its terms, without moves and with them, prices, and what failed."""

    terms: Terms
    moving: Terms
    offers: dict[_OfferKey, Offers] = field(default_factory=dict)
    failed: list[Shape] = field(default_factory=list)


class Solver:
    """The search in one node pool; all stages of a cycle share it.

    `commitments` are its plans that are part of the cycle's, `n_retries` how many more plans of the
    stage may be made again elsewhere.
    """

    def __init__(self, session: Session, pool: str) -> None:
        self.session = session
        self.pool = pool
        self.herd: Herd = find_herd(session, pool)
        self.touched: list[int] = []
        self.log: list[Step] = []
        self.fullness = Fullness(session.places, pool, self.touched)
        self.commitments = Commitments(session, pool, self.herd)
        self._known: dict[Rule, _Known] = {}
        # Shapes of the herd that have another place somewhere; the terms of all rules share it.
        self._moves = bytearray(len(self.herd.shapes))
        self._epoch = 0
        self._is_open = False
        self.n_retries = 0

    def begin(self) -> None:
        """A stage begins: queues and places may have changed since the last."""
        self.herd.sync(self.herd.queues)
        self.n_retries = _MOST_RETRIES
        for known in self._known.values():
            known.failed.clear()
        self.changed_prices()

    def close(self) -> None:
        """The cycle is over: plans and the way back from them are no more needed."""
        self.log.clear()
        self.commitments.close()

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
        search = Search(self, claim, rule, can_move=can_move)
        if self._could(search) and search.run():
            return search
        if claim.is_alike and not search.was_forbidden:
            known.failed.append(claim.shapes[0])
        return None

    def commit(self, search: Search) -> Pending | None:
        """Put the plan into the cycle's; returns what still waits of the workload."""
        rest = self.commitments.add(search)
        if has_left_over(search.trial):
            self.commitments.is_anything_left_over = True
            for known in self._known.values():
                known.failed.clear()
            self.session.places.forget_failures(self.pool)
        return rest

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

    @contextmanager
    def without_budgets(self) -> Iterator[None]:
        """Search as if disruption budgets bound no stop; what is found is rolled back."""
        herd = self.herd
        with herd.budgets.lifted():
            ruled_out = herd.ignore_budgets()
            self.begin()
            yield
        herd.heed_again(ruled_out)
        self.begin()

    def undo(self, search: Search, mark: int) -> None:
        """Roll back a plan that is not part of the cycle's; `mark` is the log's length before."""
        search.trial.rollback(mark)
        self.changed_prices()

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


def solver_of(session: Session, pool: str) -> Solver:
    """The pool's solver, ready for a stage that begins."""
    if pool not in session.solvers:
        session.solvers[pool] = Solver(session, pool)
    solver = session.solvers[pool]
    solver.begin()
    return solver
