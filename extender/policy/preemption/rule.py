"""The rule of a stage: which pods may be evicted or moved, and which solutions are allowed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from extender.api.reasons import Reason, Refused
from extender.policy.preemption.candidates import Candidates
from extender.policy.preemption.eligibility import Eligibility
from extender.policy.preemption.statement import PreemptionRequest, Statement
from extender.policy.queues.queue import Queue
from extender.policy.queues.room import check_room
from extender.policy.session import Session, placed_amounts


@dataclass(slots=True, frozen=True, eq=False)
class PreemptionRule:
    """A stage makes one rule for all requests that may evict the same pods.

    `reason` is why victims are evicted. With `needs_victims`, a solution without a victim is left
    to other stages. Unless it `can_evict`, the moved pods hold at most as many milli-GPU as the
    request needs.
    """

    session: Session
    reason: ClassVar[Reason]
    needs_victims: ClassVar[bool] = True
    can_evict: ClassVar[bool] = True

    @property
    def can_move(self) -> bool:
        """Whether pods may be moved."""
        return True

    def eligibility(self, candidates: Candidates) -> Eligibility:
        """The pods that may be evicted or moved, as arrays over the candidates."""
        raise NotImplementedError

    def validate(self, request: PreemptionRequest, statement: Statement) -> bool:
        """Whether the finished solution is allowed: the queue has room for it."""
        amounts, workload = placed_amounts(statement.placements), request.pending.workload
        return check_room(request.leaf, workload, amounts, is_now=False) is None

    def refusal(self, request: PreemptionRequest) -> Refused | None:
        """Why nothing is evicted for the request if this rule finds no solution; None: no room."""
        return None

    def reason_for(self, victim_queue: Queue) -> Reason:
        """Why a victim of this queue is evicted."""
        return self.reason

    def explain(self, request: PreemptionRequest, victim_queue: Queue) -> str:
        """A note for owners of a victim in queue `victim_queue`; may be empty."""
        return ""


class RuleSource(Protocol):
    """A stage of one node pool."""

    def rules_of(self, request: PreemptionRequest) -> Sequence[PreemptionRule] | Refused:
        """The rules to try for the request, in order, or why there is none."""
