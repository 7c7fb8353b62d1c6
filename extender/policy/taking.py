"""How the stages that make room serve those who wait: turn by turn, chunk by chunk.

A stage says with a function what rules a workload may be served by, in the order in which they are
tried, or why by none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from extender.api.reasons import Reason, Refused
from extender.policy.chunks import Pending
from extender.policy.order import take_turns
from extender.policy.plan import Stage
from extender.policy.queues import Queue
from extender.policy.session import Session
from extender.policy.solver import Solver, solver_of
from extender.policy.terms import Rule
from extender.state.model import GPU, Amounts, PodView

#: Other portions of a workload that are tried when its first has no place, as in `allocate`.
_MOST_CHUNKS: Final = 8


@dataclass(slots=True, frozen=True)
class Claim:
    """Somebody who takes: a chunk of a workload, and what it needs."""

    leaf: Queue
    pending: Pending
    chunk: Sequence[PodView]
    need: Amounts


RulesOf = Callable[[Claim], Sequence[Rule] | Refused]


@dataclass(slots=True)
class Taking:
    """A stage in one pool."""

    session: Session
    pool: str
    stage: Stage
    rules_of: RulesOf

    def serve(self, waiting: Sequence[Pending]) -> None:
        """Give everybody its turn; `session.pending` is left with what still waits."""
        session = self.session
        if not waiting:
            return
        solver = solver_of(session, self.pool)
        turns = take_turns(session, self.pool, waiting)
        done: set[int] = set()
        while (turn := turns.pop()) is not None:
            leaf, pending = turn
            key = pending.workload.key
            if session.is_spent():
                session.cut(key, self.stage)
                turns.settle()
                continue
            with session.reservations.open_to(pending, self.pool):
                result = self._serve_one(solver, leaf, pending)
            if isinstance(result, Refused):
                self._explain(pending, result)
                turns.pass_over()
                continue
            turns.settle(result)
            turns.resift()
            if result is None:
                done.add(id(pending))
                session.waits.pop(key, None)
        session.pending = [p for p in session.pending if id(p) not in done]

    def _serve_one(self, solver: Solver, leaf: Queue, pending: Pending) -> Pending | Refused | None:
        """What still waits of the workload once it was given something, or why it wasn't."""
        session, workload = self.session, pending.workload
        refused = Refused(Reason.INSUFFICIENT_GPU, f"{workload.key}: no place could be made for it")
        if session.is_giving(workload.key):
            # It grows no more in the cycle in which it shrinks.
            return refused
        if session.snapshot.now_s < workload.waits_since + workload.preemption_delay_s:
            return refused
        for at, chunk in enumerate(pending.chunks()):
            if at == _MOST_CHUNKS:
                break
            need = pending.need() if at == 0 else pending.need_of(chunk)
            rules = self.rules_of(Claim(leaf, pending, chunk, need))
            if isinstance(rules, Refused):
                refused = rules if at == 0 else refused
                continue
            for rule in rules:
                trial = solver.solve(pending, chunk, rule)
                if trial is not None:
                    return solver.commit(leaf, pending, trial, rule)
        return refused

    def _explain(self, pending: Pending, refused: Refused) -> None:
        """Say why nothing may be taken, where lack of cards is all that was known."""
        session = self.session
        known = session.waits.get(pending.workload.key)
        could_ever = pending.need()[GPU] <= session.queues[self.pool].capacity[GPU]
        is_better = refused.reason is Reason.OVER_FAIR_SHARE and could_ever
        if known is None or (known.reason is Reason.INSUFFICIENT_GPU and is_better):
            session.waits[pending.workload.key] = refused


def first_over(claim: Claim, within: Callable[[Queue], Amounts]) -> Queue | None:
    """The lowest of the taker's queues that would hold more than `within` says, or None."""
    for queue in claim.leaf.chain:
        bound = within(queue)
        if any(more and queue.allocated[r] + more > bound[r] for r, more in enumerate(claim.need)):
            return queue
    return None
