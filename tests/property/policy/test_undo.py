"""A what-if leaves nothing behind: after its undo the session is as it was, order included."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from hashlib import sha256

from hypothesis import event, given, settings
from hypothesis import strategies as st

from extender.api.reasons import Reason
from extender.policy.plan import Settings
from extender.policy.pool_policies.fair_shares import set_fair_shares
from extender.policy.preemption.candidates import Candidates
from extender.policy.preemption.eligibility import Eligibility, EligibilityBuilder
from extender.policy.preemption.fill_back import FillBack
from extender.policy.preemption.pool_context import PoolContext
from extender.policy.preemption.rule import PreemptionRule
from extender.policy.preemption.solution import Solution
from extender.policy.preemption.solver import Preemption, Solver
from extender.policy.preemption.statement import PreemptionRequest, Statement
from extender.policy.session import Session
from tests.property.policy.world import clusters, crowded
from tests.support.snapshots import Cluster

RUN = settings(max_examples=200)
#: What `Candidates` is built from, and caches of it, which no step changes.
_FIXED = ("pods", "workloads", "leaves", "members", "by_key", "shapes", "queues", "queue_ix")


@RUN
@given(st.one_of(crowded(), clusters()))
def test_a_victim_that_cannot_be_kept_leaves_no_trace(cluster: Cluster) -> None:
    solver, found = _solved(cluster)
    statements = [solution.statement for solution in found]
    for at, solution in enumerate(found):
        before = _state(solver.context, statements)
        beside = statements[:at] + statements[at + 1 :]
        _fill_back(solver.context, solution, beside).review()
        event("victims" if solution.statement.units else "moves")
        assert _state(solver.context, statements) == before


@RUN
@given(st.one_of(crowded(), clusters()))
def test_a_solution_that_is_undone_leaves_no_trace(cluster: Cluster) -> None:
    solver, found = _solved(cluster)
    statements = [solution.statement for solution in found]
    rule = _AnyVictim(solver.context.session)
    for request in _requests(solver.context.session):
        before = _state(solver.context, statements)
        solution = solver.solve(request, rule)
        event("none" if solution is None else "a solution")
        if solution is not None:
            solver.undo(solution)
        assert _state(solver.context, statements) == before


@dataclass(slots=True, frozen=True, eq=False)
class _AnyVictim(PreemptionRule):
    """Every pod of the pool may be evicted or moved."""

    reason = Reason.RECLAIMED

    def eligibility(self, candidates: Candidates) -> Eligibility:
        eligibility = EligibilityBuilder(candidates)
        for _ in candidates.queues:
            eligibility.add(1, is_mobile=True)
        return eligibility.finish(bytearray(len(candidates.pods)))


def _refuse() -> bool:
    """Allows no plan, so that every try fails after all else went well."""
    return False


def _solved(cluster: Cluster) -> tuple[Solver, list[Solution]]:
    """The pool's solver, with a committed solution for each other workload that can be served."""
    session = Session(cluster.snapshot(), Settings())
    session.read_pending()
    set_fair_shares(session)
    solver = Preemption(session).solver_of("default")
    rule, found = _AnyVictim(session), []
    for request in list(_requests(session))[::2]:
        solution = solver.solve(request, rule)
        if solution is not None:
            solver.commit(solution)
            found.append(solution)
    return solver, found


def _requests(session: Session) -> Iterator[PreemptionRequest]:
    for pending in session.backlog.pending:
        if not session.draft.placed_of(pending.workload.key):
            leaf = session.queue_of(pending.workload, "default")
            nearness = session.places.nearness(pending.workload, pending.chunk)
            is_alike = len(pending.shapes) == 1 and nearness is None
            yield PreemptionRequest(
                leaf, pending, pending.chunk, pending.need(), pending.shapes, is_alike, nearness
            )


def _fill_back(context: PoolContext, solution: Solution, beside: Sequence[Statement]) -> FillBack:
    statement, request = solution.statement, solution.request
    return FillBack(request, statement, context.fullness, _refuse, beside)


def _state(context: PoolContext, statements: Iterable[Statement]) -> dict[str, str]:
    """A hash of each part of the session that a try changes."""
    session, candidates = context.session, context.candidates
    parts: dict[str, object] = {
        f"candidates.{each.name}": getattr(candidates, each.name)
        for each in fields(candidates)
        if each.name not in _FIXED
    }
    parts["queues"] = [(q.name, q.allocated, q.allocated_np) for q in candidates.queues]
    parts["log"] = session.sim.checkpoint()
    parts["served"] = sorted(session.draft.served())
    for moment, table in (("now", session.sim.now), ("later", session.sim.later)):
        parts[moment] = (
            table.cards.card_free,
            table.free_cpu_milli,
            table.free_memory_mib,
            table.free_pods,
            table.free_counted,
        )
    for at, statement in enumerate(statements):
        places = [(uid, each.placement) for uid, each in statement.assignments.items()]
        units = [(p, unit.pods) for p, unit in statement.units.items()]
        moving = list(statement.moving.items())
        parts[f"statement {at}"] = places, units, moving, statement.checkpoint()
    return {name: _hash(part) for name, part in parts.items()}


def _hash(part: object) -> str:
    plain = sorted(part) if isinstance(part, set) else part
    return sha256(repr(plain).encode()).hexdigest()[:16]
