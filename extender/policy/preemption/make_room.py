"""Room for one pod at a time: on the node where that costs least, others move away or stop."""

from array import array
from collections.abc import Collection, Sequence
from typing import Final

from extender.kernels import nodes as node_kernel
from extender.policy.placement.node_filter import NodeSet
from extender.policy.preemption.eligibility import Terms
from extender.policy.preemption.node_costs import Offers, Price
from extender.policy.preemption.pool_context import PoolContext
from extender.policy.preemption.relocation import largest_first, move_or_stop
from extender.policy.preemption.rule import PreemptionRule
from extender.policy.preemption.statement import Claim, Trial
from extender.policy.preemption.victim_sets import unit_without_moves
from extender.policy.workloads.pod_classes import Shape
from extender.state.model import GPU, PodView

#: Nodes on which a plan with moves is tried for one pod. A node fails when its pods have no other
#: place together though each has one; a cluster in which this happens so often has no room to move.
_MOST_TRIES: Final = 512


class Room:
    """Makes room for the pods of one trial.

    `cleared` are nodes on which room was made, in this order, and `refused` those on which it is
    not to be made. `is_doubtful`: somebody was to move, had nowhere to go, and stops instead.
    """

    def __init__(
        self, context: PoolContext, trial: Trial, claim: Claim, rule: PreemptionRule
    ) -> None:
        self.cleared: list[int] = []
        self.refused: set[int] = set()
        self.is_doubtful = False
        self._context = context
        self._trial = trial
        self._claim = claim
        self._rule = rule
        self.with_moves = False
        self._n_stopped_instead = 0

    @property
    def terms(self) -> Terms:
        """Who may be asked to leave, and to move."""
        return self._context.terms(self._rule, with_moves=self.with_moves)

    def begin(self, *, with_moves: bool, refused: Collection[int]) -> None:
        """Make room in this way from here on: whether pods may move, and on which nodes not."""
        self.with_moves = with_moves
        self.refused = set(refused)

    def offers(self, shape: Shape, frame: NodeSet) -> Offers:
        """What room for pods of the shape costs on each node."""
        return self._context.offers(self._rule, shape, frame, with_moves=self.with_moves)

    def seat(self, pod: PodView, frame: NodeSet) -> bool:
        """Seat the pod in what is free, or where room is made; the caller undoes a False."""
        fullness = self._context.fullness
        if not fullness.is_full(pod.demand, pod.constraints) and self._trial.seat(pod, frame):
            return True
        offers = self.offers(Shape(pod.demand, pod.constraints, 1), frame)
        for at, ix in enumerate(offers.candidates) if self.refused else ():
            if ix in self.refused:
                offers.exclude(at)
        is_seated = self._seat_where_it_is_made(pod, frame, offers)
        if self.refused:
            offers.readmit()
        return is_seated

    def _seat_where_it_is_made(self, pod: PodView, frame: NodeSet, offers: Offers) -> bool:
        trial, is_one_of_many = self._trial, len(self._claim.chunk) > 1
        best: tuple[Price, int] | None = None
        for _ in range(_MOST_TRIES):
            at = offers.cheapest()
            if at < 0 or (best is not None and offers.price(at) >= best[0]):
                break
            mark = trial.checkpoint()
            self._n_stopped_instead = 0
            if self._make(pod, frame, offers, offers.candidates[at]):
                if self._n_stopped_instead == 0 or is_one_of_many:
                    return True
                price = trial.price()
                if best is None or price < best[0]:
                    best = price, offers.candidates[at]
            trial.rollback(mark)
            offers.refresh(self._context.touched, offers.epoch, is_undone=True)
            offers.exclude(at)
        offers.readmit()
        return best is not None and self._make(pod, frame, offers, best[1])

    def _make(self, pod: PodView, frame: NodeSet, offers: Offers, ix: int) -> bool:
        """Seat the pod on node `ix` and send away who must leave; the caller undoes a False."""
        context, trial, terms = self._context, self._trial, self.terms
        herd, chosen = context.herd, offers.choose(ix)
        if chosen is None:
            return False
        displaced, is_sure = [], not (self.with_moves or context.session.places.pod_affinity)
        for p in chosen:
            if not herd.is_here[p]:
                is_sure = False
                continue
            if self.with_moves and terms.moves[herd.shape[p]] and herd.can_move(p):
                trial.displace(p)
                displaced.append(p)
                continue
            unit = unit_without_moves(trial, terms, p)
            if unit is None:
                return False
            trial.stop(unit)
        if trial.moving and self._moves_too_much():
            return False
        # It does once all have left who were chosen, if nobody minds who is beside whom.
        if not is_sure and not self._fits(pod, ix):
            return False
        trial.seat_on(pod, ix, frame)
        self.cleared.append(ix)
        return not displaced or self._resettle(displaced)

    def _moves_too_much(self) -> bool:
        rule, moving, herd = self._rule, self._trial.moving, self._context.herd
        if rule.max_moves is not None and len(moving) > rule.max_moves:
            return True
        own = herd.by_key.get(self._claim.key)
        if any(herd.owner[p] == own for p in moving):
            return True
        return rule.is_move_bounded and herd.amounts_of(moving)[GPU] > self._claim.need[GPU]

    def _resettle(self, displaced: Sequence[int]) -> bool:
        trial, herd, terms = self._trial, self._context.herd, self.terms
        for p in largest_first(herd, displaced):
            if p in trial.moving and trial.moving[p] is None:
                if not move_or_stop(trial, terms, p):
                    return False
                if p not in trial.moving:
                    self._n_stopped_instead += 1
                    self.is_doubtful = True
        return True

    def _fits(self, pod: PodView, ix: int) -> bool:
        """Whether the node takes the pod, by what is free later and by who is there."""
        places, later = self._context.session.places, self._context.session.sim.later
        if pod.demand.counted and not later.fits_counted(ix, pod.demand):
            return False
        only = array("i", (ix,))
        if places.pod_affinity:
            only = places.pod_affinity.allowed(pod, only, "later")
        return node_kernel.best_node(later, pod.demand, only, node_kernel.BINPACK) >= 0
