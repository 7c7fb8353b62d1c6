"""One search: the pods of a claim are seated one after the other, and others leave for them.

A `Search` is a Placer (`topology`): inside each domain that is tried it makes room where nothing
is free.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from extender.kernels.victims import IMPOSSIBLE
from extender.policy.placement.node_filter import WHOLE_POOL, Frame
from extender.policy.plan import Placement
from extender.policy.preemption.eligibility import Rule
from extender.policy.preemption.fill_back import Victims
from extender.policy.preemption.limits import meet_limits
from extender.policy.preemption.make_room import Room
from extender.policy.preemption.node_costs import Price
from extender.policy.preemption.statement import Claim, Trial
from extender.policy.queues.tree import RESOURCES
from extender.policy.session import placed_amounts
from extender.policy.workloads.pod_classes import placing_orders, shapes_of
from extender.state.model import Amounts, PodView
from extender.state.nodes import NodeTable

if TYPE_CHECKING:
    from extender.policy.preemption.solver import Solver

#: So often a plan that the rule does not allow is tried, each without the nodes that those before
#: it cleared last.
_MOST_REFUSALS: Final = 4
#: So many pods are placed in every domain to see what that costs.
_FEW_PODS: Final = 32


class Search:
    """One claim's way to a plan. `was_forbidden`: there was one, but the rule does not allow it."""

    def __init__(self, solver: "Solver", claim: Claim, rule: Rule, *, can_move: bool) -> None:
        self.solver = solver
        self.claim = claim
        self.rule = rule
        self.can_move = can_move
        self.was_forbidden = False
        touched, log = solver.touched, solver.log
        self.trial = Trial(solver.session, solver.pool, solver.herd, touched, log, claim)
        self._room = Room(solver, self.trial, claim, rule)
        # Who lacks company whatever is done here.
        self._lonely = solver.session.places.beside.lonely()

    def run(self) -> bool:
        """Whether there is a plan: then the simulation holds it, otherwise nothing.

        If a pod was to move and is evicted instead, a plan without moves may cost less.
        """
        mark = self.checkpoint()
        best: tuple[Price, bool, frozenset[int]] | None = None
        for with_moves in self._ways():
            self._room.is_doubtful = False
            if self._go(with_moves=with_moves):
                if best is None and not self._room.is_doubtful:
                    return True
                price = self.trial.price()
                if best is None or price < best[0]:
                    best = price, with_moves, frozenset(self._room.refused)
            self.rollback(mark)
        return best is not None and self._go(with_moves=best[1], without=best[2])

    def _ways(self) -> Sequence[bool]:
        """Whether it is tried with moves, one attempt after the other."""
        if not self.can_move:
            return (False,)
        return (True, False) if self.rule.can_stop else (True,)

    def _go(self, *, with_moves: bool, without: Collection[int] = frozenset()) -> bool:
        """Whether there is a plan of this kind that makes no room on the nodes `without`; if not,
        the caller undoes what was tried.

        Where the rule does not allow the plan, it may allow one that makes room elsewhere.
        """
        room, mark = self._room, self.checkpoint()
        room.begin(with_moves=with_moves, refused=without)
        for _ in range(_MOST_REFUSALS):
            room.cleared.clear()
            is_placed = self._place_all()
            if not (is_placed and meet_limits(self.trial, room.terms) and self._settle()):
                return False
            if self._may_keep():
                return True
            self.was_forbidden = True
            if not room.cleared or self.solver.n_retries == 0:
                return False
            self.solver.n_retries -= 1
            room.refused.add(room.cleared[-1])
            self.rollback(mark)
        return False

    def place_in(self, pods: Sequence[PodView], pool: str, frame: Frame) -> list[Placement] | None:
        """As `topology.Placer.place_in`."""
        mark = self.checkpoint()
        for in_order in placing_orders(pods):
            if all(self._room.seat(pod, frame) for pod in in_order):
                return [self.trial.seats[pod.uid].placement for pod in pods]
            self.rollback(mark)
        return None

    def cost(self, pods: Sequence[PodView], pool: str, frame: Frame) -> tuple[int, ...]:
        """As `topology.Placer.cost`: few pods are tried, of many the cheapest nodes are summed."""
        if len(pods) <= _FEW_PODS:
            mark = self.checkpoint()
            placed = self.place_in(pods, pool, frame)
            price = self.trial.price() if placed else (IMPOSSIBLE, 0, 0)
            self.rollback(mark)
            return price
        total = [0, 0, 0]
        for shape in shapes_of(pods):
            offers = self._room.offers(shape, frame)
            for lowest in offers.lowest(shape.count):
                total = [one + more for one, more in zip(total, lowest, strict=True)]
        return tuple(total)

    def checkpoint(self) -> int:
        """A mark to roll back to."""
        return self.trial.checkpoint()

    def rollback(self, mark: int) -> None:
        """Undo everything since `mark`, prices included that were worked out since."""
        if self.trial.checkpoint() > mark:
            self.trial.rollback(mark)
            self.solver.changed_prices()

    def review(self) -> None:
        """The plan is part of the cycle's, and places came free since: let those stay who can."""
        herd = self.solver.herd
        leaves = {herd.leaves[unit.w] for unit in self.trial.units.values()} | {self.claim.leaf}
        givers = {queue for leaf in leaves for queue in leaf.chain}
        victims = self._victims()
        had = placed_amounts(self.trial.placements)
        # Who ran before may run on beside the taker, as far as limits go.
        victims.may_keep = lambda: (
            not any(map(herd.is_over_limit, givers)) and self.do_all_suit() and self.may_hold(had)
        )
        victims.review()

    def _settle(self) -> bool:
        victims = self._victims()
        if not victims.settle():
            return False
        self._room.is_doubtful |= victims.n_instead > 0
        return True

    def _may_keep(self) -> bool:
        trial = self.trial
        is_free = not trial.units and not trial.moving
        if is_free and self.rule.needs_victims and not self.claim.pending.is_behind:
            return False
        return self._is_allowed()

    def _is_allowed(self) -> bool:
        """Whether the rule allows the plan as it is, and all suit those beside whom they are, whom
        nobody leaves alone who was given a place before."""
        return self.rule.may_keep(self.claim, self.trial) and self.do_all_suit()

    def do_all_suit(self) -> bool:
        """Whether all who get places suit those beside whom they are."""
        trial, beside = self.trial, self.solver.session.places.beside
        if not beside:
            return True
        placed = (*trial.placements, *(place for place in trial.moving.values() if place))
        do_all_stand = all(beside.stands(p.pod, trial.ix_of(p.node), "later") for p in placed)
        return do_all_stand and not beside.leaves_alone(self._lonely)

    def may_hold(self, had: Amounts) -> bool:
        """Whether its quotas allow what it holds, where that is more than it `had`."""
        has, workload = placed_amounts(self.trial.placements), self.claim.pending.workload
        more = [r for r in RESOURCES if has[r] > had[r]]
        return (
            workload.is_preemptible
            or not more
            or all(
                queue.allocated_np[r] <= queue.np_quota[r]
                for queue in self.claim.leaf.chain
                for r in more
            )
        )

    def _place_all(self) -> bool:
        claim, solver = self.claim, self.solver
        if not claim.is_near and len(claim.chunk) == 1:
            return self._room.seat(claim.chunk[0], WHOLE_POOL)
        if not claim.is_near:
            return self.place_in(claim.chunk, solver.pool, WHOLE_POOL) is not None
        lay_out = solver.session.places.lay_out
        return lay_out(claim.pending, solver.pool, self, self._emptied(), claim.chunk) is not None

    def _emptied(self) -> NodeTable:
        """The nodes as they would be if everything left that may."""
        herd, terms = self.solver.herd, self._room.terms
        table = self.solver.session.sim.later.copy()
        for p, pod in enumerate(herd.pods):
            is_open = terms.tiers[herd.queue[herd.owner[p]]] or terms.moves[herd.shape[p]]
            if herd.is_here[p] and is_open:
                table.give_back(table.cards.ix[pod.node], pod.demand, pod.cards)
        return table

    def _victims(self) -> Victims:
        rule, claim, trial = self.rule, self.claim, self.trial
        return Victims(
            claim,
            trial,
            self._room.terms,
            is_full=self.solver.fullness.is_full,
            may_keep=self._is_allowed,
            can_move=rule.can_move and rule.can_stop,
        )
