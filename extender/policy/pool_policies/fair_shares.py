"""Fair shares of node pools that share by quota and weight: which demand counts, and in which pool.

Only workloads that could ever be placed count. Others would reduce the shares of other queues
without using their own. Examples: a pod that requests 16 GPUs on nodes of 8, a selector that
matches no node, a gang that lacks pods or fits no topology domain, a workload above a limit of its
queue.

A workload that may use several pools counts in the first that could hold it. In a later pool it
counts if its queue's share in the first pool leaves part of the queue's demand unmet.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from extender.api.reasons import Reason
from extender.policy.queues.fairshare import set_shares
from extender.policy.queues.queue import RESOURCES, Queue, add, frozen, subtract
from extender.policy.queues.tree import PoolQueues, tally_of
from extender.policy.session import Session
from extender.policy.workloads.pending import Pending
from extender.state.model import Amounts, PodView, WorkloadView
from extender.state.tally import pod_amounts, startable, sum_amounts

#: Reasons why a workload cannot start without an action of its owner.
_CANNOT_START: Final = (
    Reason.GANG_INCOMPLETE,
    Reason.HELD_BY_OTHER_GATE,
    Reason.HELD_BY_OWNER,
    Reason.OVER_LIMIT,
)


def set_fair_shares(session: Session) -> None:
    """Set the shares in every pool, except `demand-weighted` ones.

    Costs one pass over pending workloads, and a second division of each pool that is a later choice
    of workloads whose first choice leaves demand unmet.
    """
    pools = session.snapshot.pools
    names = [name for name in session.queues if pools[name].policy != "demand-weighted"]
    demand = _CountedDemand(session, frozenset(names))
    demand.leave_out_unplaceable()
    later = demand.leave_out_later_choices()
    for name in names:
        _divide(session, name)
    for name in sorted(demand.add_unmet(later)):
        _divide(session, name)


def _divide(session: Session, pool: str) -> None:
    weight = session.snapshot.pools[pool].usage_weight_milli
    settings = session.settings
    set_shares(session.queues[pool], settings.usage_weight_milli if weight is None else weight)


@dataclass(slots=True, frozen=True)
class _LaterChoice:
    """The waiting pods of a workload, not counted in `pool`, which is not its first choice.

    `first` is the workload's queue in its first choice, `leaf` the one in `pool`.
    """

    pool: str
    first: Queue
    leaf: Queue
    amounts: Amounts
    is_np: bool


@dataclass(slots=True)
class _CountedDemand:
    """Decides which waiting pods count in the demand of queues, in the pools `names`."""

    session: Session
    names: frozenset[str]

    def leave_out_unplaceable(self) -> None:
        """Leave out workloads that cannot start, and in each pool those it could never hold."""
        session = self.session
        for key in sorted(tally_of(session.snapshot).waiting & session.draft.waits.keys()):
            if session.draft.waits[key].reason in _CANNOT_START:
                workload = session.snapshot.workloads[key]
                for pool in dict.fromkeys(workload.pools):
                    self._leave_out(workload, pool, startable(workload))
        for pending in session.backlog.pending:
            workload, asked = pending.workload, pending.counted or pending.waiting
            for pool in dict.fromkeys(workload.pools):
                # Waiting pods of a gang must be in the pool of its running pods.
                is_possible = pool in pending.pools and self._could_hold(pending, pool)
                able = pending.waiting if is_possible else ()
                if able is not asked:
                    self._leave_out(workload, pool, asked, instead=able)

    def leave_out_later_choices(self) -> list[_LaterChoice]:
        """Leave out workloads with several pools in all but the first that could hold them."""
        found = []
        for pending in self.session.backlog.pending:
            if len(pending.pools) == 1:
                continue
            usable = [pool for pool in pending.pools if self._could_hold(pending, pool)]
            for pool in usable[1:]:
                if pool in self.names and usable[0] in self.names:
                    found.append(self._later_choice(pending, pool, usable[0]))
        for each in found:
            _leave_out(each.leaf, each.amounts, is_np=each.is_np)
        return found

    def add_unmet(self, later: Iterable[_LaterChoice]) -> set[str]:
        """Count demand that a first choice leaves unmet in the later pools; returns their names."""
        unmet: dict[tuple[Queue, str], list[int]] = {}
        changed = set()
        for each in later:
            first = each.first
            left = unmet.setdefault(
                (first, each.pool),
                [_demand_of(first, r) - first.exact_share[r] for r in RESOURCES],
            )
            if any(left[r] > 0 and each.amounts[r] for r in RESOURCES):
                subtract(left, each.amounts)
                gpu, cpu, memory = each.amounts
                _leave_out(each.leaf, (-gpu, -cpu, -memory), is_np=each.is_np)
                changed.add(each.pool)
        return changed

    def _could_hold(self, pending: Pending, pool: str) -> bool:
        if pool not in self.names:
            return True
        session = self.session
        return session.is_ever_allowed(pending, pool) and session.capacity_bound.allows(
            pending, pool
        )

    def _later_choice(self, pending: Pending, pool: str, first: str) -> _LaterChoice:
        session, workload = self.session, pending.workload
        queues = session.queues[pool]
        return _LaterChoice(
            pool,
            session.queue_of(workload, first),
            session.queue_of(workload, pool),
            _amounts_of(queues, pending.waiting),
            not workload.is_preemptible,
        )

    def _leave_out(
        self,
        workload: WorkloadView,
        pool: str,
        pods: Sequence[PodView],
        *,
        instead: Sequence[PodView] = (),
    ) -> None:
        queues = self.session.queues[pool] if pool in self.names else None
        leaf = queues.leaf_of(workload) if queues is not None else None
        if queues is not None and leaf is not None:
            amounts = list(_amounts_of(queues, pods))
            subtract(amounts, _amounts_of(queues, instead))
            _leave_out(leaf, frozen(amounts), is_np=not workload.is_preemptible)


def _amounts_of(queues: PoolQueues, pods: Iterable[PodView]) -> Amounts:
    """The demand of the pods in the pool."""
    return sum_amounts(pod_amounts(pod.demand, queues.smallest_card_mib) for pod in pods)


def _leave_out(leaf: Queue, amounts: Amounts, *, is_np: bool) -> None:
    add(leaf.uncounted, amounts)
    if is_np:
        add(leaf.uncounted_np, amounts)


def _demand_of(leaf: Queue, resource: int) -> int:
    """The queue's allocation plus its counted pending requests."""
    return leaf.allocated[resource] + leaf.pending[resource] - leaf.uncounted[resource]
