"""The search for victims in a node pool: a whole solution is simulated before any pod is evicted.

Pod by pod, the request takes resources that will be free, or else the node on which making room
costs least. A victim moves if the rule allows it and another node has room; otherwise it is
evicted. Only a complete solution becomes part of the plan; otherwise the simulation is rolled back.

Requests that cannot be served are refused before the search, by sums over the pool or by looking at
each node. A refusal is remembered by rule and shape until a pod frees resources that stay unused; a
refusal because of a limit is remembered only for the queue with the limit.
"""

from array import array
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from extender.kernels.sums import sum_idle
from extender.policy.preemption.candidates import Candidates
from extender.policy.preemption.plan_review import CommittedSolutions, has_left_over, review
from extender.policy.preemption.pool_context import PoolContext
from extender.policy.preemption.rule import PreemptionRule
from extender.policy.preemption.search import Search
from extender.policy.preemption.solution import Solution
from extender.policy.preemption.statement import PreemptionRequest
from extender.policy.queues.queue import RESOURCES
from extender.policy.session import Session
from extender.policy.workloads.pending import Pending
from extender.state.model import GPU


class Solver:
    """The search in one node pool, shared by all stages of a cycle. `committed` are the solutions
    that are part of the cycle's plan."""

    def __init__(self, session: Session, pool: str) -> None:
        self.context = PoolContext(session, pool)
        self.committed = CommittedSolutions(session, pool, self.context.candidates)
        self._is_open = False

    @property
    def candidates(self) -> Candidates:
        """The pods of the pool that may be evicted or moved."""
        return self.context.candidates

    def begin(self) -> None:
        """Begin a stage: queues and placements may have changed since the last."""
        self.context.begin()

    def solve(self, request: PreemptionRequest, rule: PreemptionRule) -> Solution | None:
        """A solution that the simulation holds; None if there is none."""
        self._watch_reservation()
        if self.context.has_failed(rule, request.leaf, request.shapes):
            return None
        can_move = rule.can_move and not self._is_refused(request) and self.context.find_moves()
        if not can_move and not rule.can_evict:
            return None
        search = Search(self.context, request, rule, can_move=can_move)
        if self._is_feasible(search) and search.run():
            return search.solution
        if request.is_alike and not search.was_forbidden:
            leaf = request.leaf if search.was_over_limit else None
            self.context.note_failure(rule, leaf, request.shapes[0])
        return None

    def _is_refused(self, request: PreemptionRequest) -> bool:
        """Whether kube-scheduler refused a pod on a node that had room for it. No pod is moved for
        it then: a moved pod could go to that node, and would be refused in its place."""
        now_s = self.context.session.snapshot.now_s
        barred = (shape.constraints.barred for shape in request.shapes)
        return any(until > now_s for nodes in barred for _, until in nodes)

    def commit(self, solution: Solution) -> Pending | None:
        """Add the solution to the cycle's plan; returns what is still pending of the workload."""
        rest = self.committed.add(solution)
        if has_left_over(solution.statement):
            self.committed.is_anything_left_over = True
            self.context.forget_failures()
            self.context.session.places.forget_failures(self.context.pool)
        return rest

    @contextmanager
    def without_budgets(self) -> Iterator[None]:
        """Search as if disruption budgets allowed all evictions; callers undo what is found."""
        candidates = self.candidates
        with candidates.budgets.lifted():
            ruled_out = candidates.lift_budgets()
            self.begin()
            yield
        candidates.reapply_budgets(ruled_out)
        self.begin()

    def undo(self, solution: Solution) -> None:
        """Roll back a solution that is not part of the cycle's plan."""
        solution.statement.rollback(0)
        self.context.forget_costs()

    def _watch_reservation(self) -> None:
        """Forget failures and costs while reserved cards count as free, and when that ends."""
        context = self.context
        is_open = context.pool in context.session.places.open_pools
        if is_open or self._is_open:
            context.forget_failures()
            context.forget_costs()
        self._is_open = is_open

    def _is_feasible(self, search: Search) -> bool:
        """Whether totals of the pool, and counts of the pods that nodes could hold, allow a plan.

        The victims of a single pod are searched node by node anyway.
        """
        request, rule = search.request, search.rule
        n_pods = len(request.chunk)
        if n_pods == 1 and rule.can_evict:
            return True
        eligibility = self.context.eligibility(rule, with_moves=False)
        most = eligibility.most_freed(self.candidates)
        idle = array("q", bytes(24))
        sum_idle(self.context.session.sim.later, self._with_room(search), idle)
        # `idle` does not include MIG instances.
        counted = sum(pod.demand.counted_milli for pod in request.chunk)
        need = request.need[0] - counted, request.need[1], request.need[2]
        queues = self.context.session.queues[self.context.pool]
        if search.can_move and queues.has_unequal_cards:
            idle[GPU] = queues.capacity[GPU]
        if any(need[r] > idle[r] + most[r] for r in RESOURCES):
            return False
        if n_pods == 1 or len(request.shapes) > 1:
            return True
        costs = self.context.costs(rule, request.shapes[0], with_moves=search.can_move)
        return costs.capacity(n_pods) >= n_pods

    def _with_room(self, search: Search) -> "array[int]":
        """The nodes whose free resources count: those that the request, or a moved pod, may use."""
        node_filter = self.context.session.places.node_filter
        if search.can_move:
            return array("i", node_filter.ready(self.context.pool))
        shapes = search.request.shapes
        listed = [node_filter.candidates(self.context.pool, shape.constraints) for shape in shapes]
        return listed[0] if len(listed) == 1 else array("i", sorted(set().union(*listed)))


class Preemption:
    """The solvers of a cycle, by node pool."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._solvers: dict[str, Solver] = {}

    def solver_of(self, pool: str) -> Solver:
        """The pool's solver, ready for the next stage."""
        if pool not in self._solvers:
            self._solvers[pool] = Solver(self.session, pool)
        solver = self._solvers[pool]
        solver.begin()
        return solver

    def commit(self, solver: Solver, solution: Solution) -> Pending | None:
        """As `Solver.commit`. A workload with victims in one pool is barred in others, since each
        pool counts what is left of the workload on its own."""
        others = [other for other in self._solvers.values() if other is not solver]
        if others:
            workloads, owner = solver.candidates.workloads, solver.candidates.owner
            victims = {workloads[owner[p]].key for p in solution.statement.leaving()}
            for other in others:
                other.candidates.bar_all(victims)
        return solver.commit(solution)

    def bar(self, keys: Collection[str]) -> None:
        """Evict and move nothing of these workloads from now on."""
        for solver in self._solvers.values():
            solver.candidates.bar_all(keys)

    def count_leaving(self) -> None:
        """Make work that starts now leave room for all pods evicted in this cycle."""
        for solver in self._solvers.values():
            solver.committed.count_leaving()

    def review(self, *, is_changed: bool = False) -> None:
        """As `plan_review.review`, over all pools."""
        pools = [solver.committed for solver in self._solvers.values()]
        review(self.session, pools, is_changed=is_changed)
