"""What all requests of one node pool share during victim selection: candidates, costs, and shapes
known to fit nowhere."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from extender.api.demand import Demand
from extender.policy.placement.no_fit import Fullness
from extender.policy.placement.node_filter import WHOLE_POOL, NodeSet
from extender.policy.preemption.candidate_table import find_candidates
from extender.policy.preemption.candidates import Candidates
from extender.policy.preemption.eligibility import Eligibility
from extender.policy.preemption.node_costs import NodeCosts
from extender.policy.preemption.rivals import Rivals
from extender.policy.preemption.rule import PreemptionRule
from extender.policy.queues.queue import Queue
from extender.policy.session import Session
from extender.policy.workloads.pod_classes import Shape

_CostKey = tuple[bool, Demand, int, int]


@dataclass(slots=True)
class _Known:
    """What is known of a rule: eligible pods, without moves and with them, costs, and shapes that
    failed in any queue (None), or in one queue because of its limits and those above it."""

    eligibility: Eligibility
    moving: Eligibility
    costs: dict[_CostKey, NodeCosts] = field(default_factory=dict)
    failed: dict[Queue | None, list[Shape]] = field(default_factory=dict)


class PoolContext:
    """One node pool, for all stages of a cycle. `touched` are changed nodes, in order."""

    def __init__(self, session: Session, pool: str) -> None:
        self.session = session
        self.pool = pool
        self.candidates: Candidates = find_candidates(session, pool)
        self.touched: list[int] = []
        self.fullness = Fullness(session.places, pool, self.touched)
        self._known: dict[PreemptionRule, _Known] = {}
        # 1 for each shape of candidates that fits elsewhere; shared by all rules.
        self._moves = bytearray(len(self.candidates.shapes))
        self._epoch = 0

    @cached_property
    def rivals(self) -> Rivals:
        """The candidates that anti-affinity keeps apart from pending pods."""
        return Rivals(self.session.places.pod_affinity, self.candidates.pods)

    def begin(self) -> None:
        """Begin a stage: queues and placements may have changed since the last."""
        self.candidates.sync(self.candidates.queues)
        self.forget_failures()
        self.forget_costs()

    def has_failed(self, rule: PreemptionRule, leaf: Queue, shapes: Sequence[Shape]) -> bool:
        """Whether the rule found no plan for a pod that requests at most one of these shapes."""
        failed = (self._known.get(rule) or self._learn(rule)).failed
        known = [*failed.get(None, ()), *failed.get(leaf, ())] if failed else ()
        return any(shape.is_no_easier_than(each) for each in known for shape in shapes)

    def note_failure(self, rule: PreemptionRule, leaf: Queue | None, shape: Shape) -> None:
        """Record that the rule found no plan: in any queue, or in `leaf` because of limits."""
        self._known[rule].failed.setdefault(leaf, []).append(shape)

    def forget_failures(self) -> None:
        """Forget failures, because resources were freed."""
        for known in self._known.values():
            known.failed.clear()

    def find_moves(self) -> bool:
        """Find the shapes of candidates that fit elsewhere; returns whether there are any."""
        is_any = False
        for at, (demand, constraints) in enumerate(self.candidates.shapes):
            can_move = not self.fullness.is_full(demand, constraints)
            is_any = is_any or can_move
            if self._moves[at] != can_move:
                self._moves[at] = can_move
                self._epoch += 1
        return is_any

    def eligibility(self, rule: PreemptionRule, *, with_moves: bool) -> Eligibility:
        """The pods that the rule may evict or move."""
        known = self._known[rule]
        return known.moving if with_moves else known.eligibility

    def costs(
        self, rule: PreemptionRule, shape: Shape, frame: NodeSet = WHOLE_POOL, *, with_moves: bool
    ) -> NodeCosts:
        """Up-to-date costs of making room for such a pod."""
        known = self._known[rule]
        key = with_moves, shape.demand, id(shape.constraints), id(frame)
        costs = known.costs.get(key)
        if costs is None:
            node_filter = self.session.places.node_filter
            node_ixs = node_filter.candidates(self.pool, shape.constraints, frame)
            eligibility, table = (
                self.eligibility(rule, with_moves=with_moves),
                self.session.sim.later,
            )
            costs = known.costs[key] = NodeCosts(
                table, self.candidates, eligibility, shape.demand, node_ixs
            )
        costs.refresh(self.touched, self._epoch)
        return costs

    def forget_costs(self) -> None:
        """Discard costs computed during a plan that was rolled back."""
        self._epoch += 1
        self.fullness.forget()

    def _learn(self, rule: PreemptionRule) -> _Known:
        eligibility = rule.eligibility(self.candidates)
        known = self._known[rule] = _Known(eligibility, replace(eligibility, moves=self._moves))
        return known
