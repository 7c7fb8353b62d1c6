"""Serves pending workloads in the stages that evict or move pods, chunk by chunk.

A stage is a `RuleSource`, which returns the rules to try for a request or why there is none.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from extender.api.reasons import Reason, Refused
from extender.policy.plan import Stage
from extender.policy.preemption.rule import PreemptionRule, RuleSource
from extender.policy.preemption.solver import Preemption, Solver
from extender.policy.preemption.statement import PreemptionRequest
from extender.policy.queues.queue import Queue
from extender.policy.session import Session
from extender.policy.workloads.job_order import Turns
from extender.policy.workloads.pending import Pending
from extender.policy.workloads.pod_classes import shapes_of
from extender.state.model import GPU, Amounts, PodView

#: Pending workloads of a stage for which victims held back by disruption budgets are reported.
_MOST_HELD_BACK: Final = 16


@dataclass(slots=True)
class PreemptionLoop:
    """One stage in one pool."""

    preemption: Preemption
    pool: str
    stage: Stage
    rules: RuleSource
    solver: Solver | None = None

    @property
    def session(self) -> Session:
        """The cycle."""
        return self.preemption.session

    def serve(self, waiting: Sequence[Pending]) -> None:
        """Serve every workload in turn; the backlog keeps what is still pending."""
        session = self.session
        if not waiting:
            return
        turns = session.take_turns(self.pool, waiting)
        done: set[int] = set()
        while (turn := turns.pop()) is not None:
            leaf, pending = turn
            key = pending.workload.key
            if session.is_spent():
                session.draft.cut(key, self.stage)
                turns.settle()
                continue
            result: Pending | Refused | None = session.why_barred(pending, self.pool)
            if result is None:
                with session.reservations.lifted_for(pending, self.pool):
                    result = self.serve_one(leaf, pending)
            if isinstance(result, Refused):
                self._explain(pending, result)
                holds_up = session.holds_up_queue(pending, self.pool)
                if not holds_up:
                    self._explain_alike(turns, pending, result)
                turns.pass_over(holds_up=holds_up)
                continue
            turns.settle(result)
            if self.solver is not None and self.solver.committed.victim_queues:
                turns.resift(self.solver.committed.victim_queues)
            if result is None:
                done.add(id(pending))
                session.draft.waits.pop(key, None)
        self.preemption.review()
        left = [pending for pending in waiting if id(pending) not in done]
        self.report_held_back(left)
        session.backlog.settle(waiting, left)

    def serve_one(self, leaf: Queue, pending: Pending) -> Pending | Refused | None:
        """Serve the workload; returns what is still pending of it, or why it was not served."""
        refused = self._why_not_yet(pending)
        if refused is not None:
            return refused
        for request in self._requests(leaf, pending):
            rules = self.rules.rules_of(request)
            if isinstance(rules, Refused):
                refused = refused or rules
                continue
            result = self._solve(request, rules)
            if not isinstance(result, Refused):
                return result
        return refused or self._no_solution(pending)

    def _why_not_yet(self, pending: Pending) -> Refused | None:
        """Why no pod is evicted for the workload in this cycle; None if pods may be."""
        session, workload = self.session, pending.workload
        if workload.doubt is not None:
            return workload.doubt
        if session.draft.is_shrinking(workload.key):
            return _not_yet(pending, "pods of it stop in this cycle, it grows in a later one")
        if workload.never_preempts:
            return _not_yet(pending, "no pod is evicted for it: its preemptionPolicy is Never")
        if session.snapshot.now_s < workload.waits_since + workload.preemption_delay_s:
            waits_s = workload.preemption_delay_s
            return _not_yet(
                pending, f"no pod is evicted for it in its first {waits_s} s of waiting"
            )
        return None

    def _solve(
        self, request: PreemptionRequest, rules: Sequence[PreemptionRule]
    ) -> Pending | Refused | None:
        """Serve the request by the first rule that finds a solution."""
        pending = request.pending
        # Built for the first request that has a rule: in most cycles none has.
        solver = self.solver = self.solver or self.preemption.solver_of(self.pool)
        for rule in rules:
            found = solver.solve(request, rule)
            if found is not None:
                return self.preemption.commit(solver, found)
        return rules[0].refusal(request) or self._no_solution(pending)

    def _no_solution(self, pending: Pending) -> Refused:
        why = "no place could be made for it"
        if "allocate" not in self.session.settings.stages:
            why = f"{why}; free places are given by stage allocate, which is left out"
        return _not_yet(pending, why)

    def report_held_back(self, waiting: Sequence[Pending]) -> None:
        """Report the victims that pending workloads would get if no budget protected them."""
        session, solver = self.session, self.solver
        if solver is None or not solver.candidates.guarded or not waiting:
            return
        with solver.without_budgets():
            for pending in waiting[:_MOST_HELD_BACK]:
                leaf = session.queue_of(pending.workload, self.pool)
                with session.reservations.lifted_for(pending, self.pool):
                    self._report_held_back_for(leaf, pending, solver)

    def _report_held_back_for(self, leaf: Queue, pending: Pending, solver: Solver) -> None:
        session, candidates = self.session, solver.candidates
        guarded, key = set(candidates.guarded), pending.workload.key
        if session.is_spent() or self._why_not_yet(pending) is not None:
            return
        request = self._request(leaf, pending, pending.chunk, pending.need())
        rules = self.rules.rules_of(request)
        for rule in () if isinstance(rules, Refused) else rules:
            found = solver.solve(request, rule)
            if found is None:
                continue
            held = [p for p in found.statement.leaving() if p in guarded]
            solver.undo(found)
            if held:
                owners = [candidates.workloads[candidates.owner[p]] for p in held]
                said = session.hold_back(
                    [candidates.pods[p] for p in held], owners, pending.workload.project
                )
                session.draft.waits[key] = Refused(Reason.VICTIMS_PROTECTED, f"{key}: {said}")
            return

    def _requests(self, leaf: Queue, pending: Pending) -> Iterator[PreemptionRequest]:
        """A request for the next chunk, then one for each that may be tried in its place."""
        yield self._request(leaf, pending, pending.chunk, pending.need())
        if len(pending.waiting) > len(pending.chunk):
            for chunk in pending.other_chunks():
                yield self._request(leaf, pending, chunk, pending.need_of(chunk))

    def _request(
        self, leaf: Queue, pending: Pending, chunk: Sequence[PodView], need: Amounts
    ) -> PreemptionRequest:
        shapes = pending.shapes if chunk is pending.chunk else shapes_of(chunk)
        nearness = self.session.places.nearness(pending.workload, chunk)
        is_alike = len(shapes) == 1 and nearness is None
        if is_alike and self.session.places.pod_affinity:
            is_alike = not self.session.places.pod_affinity.concerns(chunk)
        return PreemptionRequest(leaf, pending, chunk, need, shapes, is_alike, nearness)

    def _explain_alike(self, turns: Turns, pending: Pending, refused: Refused) -> None:
        """Refuse the identical workloads next in line as well."""
        if self._why_not_yet(pending) is None:
            for other, why in self.session.refused_alike(turns, pending, refused, self.pool):
                self._explain(other, self._why_not_yet(other) or why)

    def _explain(self, pending: Pending, refused: Refused) -> None:
        """Record why no pod is evicted, if at most a lack of GPUs was known so far."""
        session = self.session
        key = pending.workload.key
        known = session.draft.waits.get(key)
        could_ever = pending.need()[GPU] <= session.queues[self.pool].capacity[GPU]
        could_ever = could_ever and (key, self.pool) not in session.shortages.hopeless
        is_better = refused.reason is Reason.OVER_FAIR_SHARE and could_ever
        is_better = is_better or refused is pending.workload.doubt
        if known is None or (known.reason is Reason.INSUFFICIENT_GPU and is_better):
            session.draft.waits[key] = refused


def _not_yet(pending: Pending, why: str) -> Refused:
    return Refused(Reason.INSUFFICIENT_GPU, f"{pending.workload.key}: {why}")
