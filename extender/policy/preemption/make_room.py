"""Makes room for one pod at a time, on the node where that costs least."""

from array import array
from collections.abc import Sequence
from typing import Final

from extender.kernels import nodes as node_kernel
from extender.policy.placement.node_filter import NodeSet
from extender.policy.preemption.eligibility import Eligibility
from extender.policy.preemption.node_costs import Cost, NodeCosts
from extender.policy.preemption.pool_context import PoolContext
from extender.policy.preemption.relocation import move_or_evict, relocation_order
from extender.policy.preemption.rule import PreemptionRule
from extender.policy.preemption.statement import PreemptionRequest, Statement
from extender.policy.preemption.victim_sets import unit_without_moves
from extender.policy.workloads.gangs import has_groups
from extender.policy.workloads.pod_classes import Shape
from extender.state.model import GPU, PodView

#: Nodes on which a plan with moves is tried for one pod. A node fails if its pods fit elsewhere one
#: by one but not together; a cluster in which that happens so often has no room for moves. The pods
#: of a gang compare this many nodes together.
_MOST_TRIES: Final = 512


class NodeClearing:
    """Makes room for the pods of one statement, `with_moves` or by evictions only, except on the
    nodes ix in `passed_over`. `was_evicted_instead`: a pod that was to be moved was evicted."""

    def __init__(
        self,
        context: PoolContext,
        statement: Statement,
        request: PreemptionRequest,
        rule: PreemptionRule,
    ) -> None:
        self._context = context
        self._statement = statement
        self._request = request
        self._rule = rule
        self.with_moves = False
        self.was_evicted_instead = False
        self.passed_over: set[int] = set()
        self._n_evicted_instead = 0
        self._has_rivals = False
        self._protected: list[int] = []
        self._rivals: dict[int, set[str]] = {}
        self._wanted: frozenset[int] = frozenset()

    @property
    def eligibility(self) -> Eligibility:
        """Which pods may be evicted, and moved."""
        return self._context.eligibility(self._rule, with_moves=self.with_moves)

    def costs(self, shape: Shape, frame: NodeSet) -> NodeCosts:
        """What making room for pods of the shape costs on each node."""
        return self._context.costs(self._rule, shape, frame, with_moves=self.with_moves)

    def assign(self, pod: PodView, frame: NodeSet) -> bool:
        """Place the pod on free resources, or where room is made; the caller rolls back a False."""
        fullness = self._context.fullness
        if not fullness.is_full(pod.demand, pod.constraints) and self._statement.assign(pod, frame):
            return True
        costs = self.costs(Shape(pod.demand, pod.constraints, 1), frame)
        return self._assign_with_victims(pod, frame, costs)

    def _assign_with_victims(self, pod: PodView, frame: NodeSet, costs: NodeCosts) -> bool:
        """Try nodes from the cheapest. If a disruption budget protects a victim or the pod needs it
        as an affinity peer, its node is offered again without that victim."""
        spared: list[int] = []
        is_assigned = self._try_nodes(pod, frame, costs, spared)
        for p in spared:
            self._set_spared(p, is_spared=False)
        return is_assigned

    def _set_spared(self, p: int, *, is_spared: bool) -> None:
        """Exclude the pod while room is made for one pod, or include it again."""
        self._context.candidates.spare(p, is_spared=is_spared)
        self._context.touched.extend(self._statement.nodes_of(self._context.candidates.owner[p]))

    def _try_nodes(self, pod: PodView, frame: NodeSet, costs: NodeCosts, spared: list[int]) -> bool:
        statement, n_pods = self._statement, len(self._request.chunk)
        best: tuple[Cost, int] | None = None
        self._find_wanted(costs)
        self._rivals = self._context.rivals.find(pod)
        for n_tried in range(_MOST_TRIES):
            at = costs.cheapest()
            is_enough = best is not None and n_tried * n_pods >= _MOST_TRIES
            if at < 0 or is_enough or (best is not None and costs.cost(at) >= best[0]):
                break
            if costs.node_ixs[at] in self.passed_over:
                costs.exclude(at)
                continue
            mark = statement.checkpoint()
            self._n_evicted_instead = 0
            self._protected.clear()
            if self._make(pod, frame, costs, costs.node_ixs[at]):
                # The cost of a gang's pods includes that of the pods placed before.
                is_unsure = best is not None if n_pods > 1 else self._n_evicted_instead > 0
                if not self._has_rivals and not is_unsure:
                    return True
                cost = statement.cost()
                if best is None or cost < best[0]:
                    best = cost, costs.node_ixs[at]
            statement.rollback(mark)
            if not self._protected:
                costs.refresh(self._context.touched, costs.epoch, is_undone=True)
                costs.exclude(at)
                continue
            # Only one: without it, the node's other protected pods may be evicted after all.
            spared.append(self._protected[0])
            self._set_spared(spared[-1], is_spared=True)
            costs.refresh(self._context.touched, costs.epoch, is_undone=True)
        costs.readmit()
        return best is not None and self._make(pod, frame, costs, best[1])

    def _find_wanted(self, costs: NodeCosts) -> None:
        """Find the nodes on which this pod and the next ones of a gang would be placed."""
        n = len(self._request.chunk) - len(self._statement.assignments)
        is_needed = self.with_moves and n > 1
        self._wanted = costs.cheapest_nodes(n) if is_needed else frozenset()

    def _make(self, pod: PodView, frame: NodeSet, costs: NodeCosts, ix: int) -> bool:
        """Place the pod on node `ix` and evict or move victims; the caller rolls back a False."""
        context, statement = self._context, self._statement
        candidates, displaced = context.candidates, list[int]()
        rivals = self._rivals_of(ix)
        # The node's cost does not include the rivals, so another node may be cheaper.
        self._has_rivals = bool(rivals)
        if not all(self._displace(p, displaced) for p in rivals):
            return False
        if rivals:
            costs.refresh(context.touched, costs.epoch)
        chosen = costs.choose(ix)
        if chosen is None:
            return False
        is_sure = not (self.with_moves or context.session.places.pod_affinity)
        for p in chosen:
            is_sure = is_sure and bool(candidates.is_here[p])
            if not self._displace(p, displaced):
                if not self._has_left_in_part(candidates.owner[p]):
                    return False
                is_sure = False
        if statement.moving and self._moves_too_much():
            return False
        # Once all chosen pods are gone the pod fits, unless pod affinity matters.
        if not is_sure and not self._fits(pod, ix):
            self._keep_peer(pod, chosen)
            return False
        statement.assign_to(pod, ix, frame)
        return not displaced or self._relocate(displaced)

    def _displace(self, p: int, displaced: list[int]) -> bool:
        """Evict the pod, or take it off its node and add it to `displaced`; False if not
        allowed."""
        statement, eligibility = self._statement, self.eligibility
        candidates = self._context.candidates
        if not candidates.is_here[p]:
            return True
        if self.with_moves and eligibility.moves[candidates.shape[p]] and candidates.can_move(p):
            statement.displace(p)
            displaced.append(p)
            return True
        unit = unit_without_moves(statement, eligibility, p)
        if unit is None:
            self._note_if_protected(p)
            return False
        statement.evict(unit)
        return True

    def _has_left_in_part(self, w: int) -> bool:
        """Whether a group of the workload is evicted. The kernel chooses all of its groups, but one
        may be enough, and the others may have to stay."""
        units = self._statement.units.values()
        return has_groups(self._context.candidates.workloads[w]) and any(u.w == w for u in units)

    def _rivals_of(self, ix: int) -> list[int]:
        """The running rivals that keep the pod off node `ix`. Those of small workloads come first:
        a queue has to be above what it keeps before each eviction, but not after the last."""
        candidates, labels = self._context.candidates, self._context.session.snapshot.nodes.labels
        found = [
            p
            for p, keys in self._rivals.items()
            if candidates.is_here[p]
            and any(
                labels[ix].get(key, "")
                == labels[self._statement.ix_of(candidates.pods[p].node)].get(key)
                for key in keys
            )
        ]
        size, owner, pods = candidates.whole_amounts, candidates.owner, candidates.pods
        return sorted(found, key=lambda p: (size[3 * owner[p]], pods[p].uid))

    def _note_if_protected(self, p: int) -> None:
        """Note a pod that a budget protects, so that other victims are tried."""
        if self._context.candidates.is_protected_by_budget(p):
            self._protected.append(p)

    def _keep_peer(self, pod: PodView, chosen: Sequence[int]) -> None:
        """Protect the first of the victims that the pod needs as an affinity peer."""
        affinity, pods = self._context.session.places.pod_affinity, self._context.candidates.pods
        self._protected += [p for p in chosen if affinity.is_peer(pod, pods[p])][:1]

    def _moves_too_much(self) -> bool:
        rule, moving, candidates = self._rule, self._statement.moving, self._context.candidates
        max_moves = self._context.session.settings.max_moves
        if max_moves is not None and len(moving) > max_moves:
            return True
        own = candidates.by_key.get(self._request.key)
        if any(candidates.owner[p] == own for p in moving):
            return True
        return not rule.can_evict and candidates.amounts_of(moving)[GPU] > self._request.need[GPU]

    def _relocate(self, displaced: Sequence[int]) -> bool:
        statement, candidates, eligibility = (
            self._statement,
            self._context.candidates,
            self.eligibility,
        )
        for p in relocation_order(candidates, eligibility, displaced):
            if p in statement.moving and statement.moving[p] is None:
                if not move_or_evict(statement, eligibility, p, self._wanted):
                    self._note_if_protected(p)
                    return False
                self._n_evicted_instead += p not in statement.moving
                self.was_evicted_instead |= p not in statement.moving
        return True

    def _fits(self, pod: PodView, ix: int) -> bool:
        """Whether the pod fits on the node later, with pod affinity."""
        places, later = self._context.session.places, self._context.session.sim.later
        if pod.demand.counted and not later.fits_counted(ix, pod.demand):
            return False
        only = array("i", (ix,))
        if places.pod_affinity:
            only = places.pod_affinity.allowed(pod, only, "later")
        return node_kernel.best_node(later, pod.demand, only, node_kernel.BINPACK) >= 0
