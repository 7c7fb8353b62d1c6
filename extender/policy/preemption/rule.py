"""The rule of a stage: which pods may be evicted or moved for a request, and for which solution."""

from collections.abc import Sequence
from typing import Protocol

from extender.api.reasons import Reason, Refused
from extender.policy.preemption.candidates import Candidates
from extender.policy.preemption.eligibility import Eligibility
from extender.policy.preemption.statement import PreemptionRequest, Statement
from extender.policy.queues.tree import Queue


class PreemptionRule(Protocol):
    """A stage makes one rule for all requests that may evict the same pods.

    `needs_victims`: a request that fits without any victim is left to other stages. At most
    `max_moves` pods are moved (None: no bound), and with `is_move_bounded` no more milli-GPU than
    the request needs.
    """

    @property
    def reason(self) -> Reason:
        """Why victims are evicted."""

    @property
    def needs_victims(self) -> bool:
        """Whether a solution without a victim is refused."""

    @property
    def can_evict(self) -> bool:
        """Whether pods may be evicted."""

    @property
    def can_move(self) -> bool:
        """Whether pods may be moved."""

    @property
    def max_moves(self) -> int | None:
        """How many pods may be moved for one request."""

    @property
    def is_move_bounded(self) -> bool:
        """Whether the moved pods may hold no more milli-GPU than the request needs."""

    def eligibility(self, candidates: Candidates) -> Eligibility:
        """The pods that may be evicted or moved, as arrays over the candidates."""

    def validate(self, request: PreemptionRequest, statement: Statement) -> bool:
        """Whether the finished solution is allowed."""

    def explain(self, request: PreemptionRequest, victim_queue: Queue) -> str:
        """What owners of a victim in queue `victim_queue` are told; may be empty."""


class RuleSource(Protocol):
    """A stage of one node pool."""

    def rules_of(self, request: PreemptionRequest) -> Sequence[PreemptionRule] | Refused:
        """The rules that the request may be served by, in the order in which they are tried, or
        why it is served by none."""
