"""The shares of node pools that share by quota and weight: which demand counts, and where.

Only work that could ever be placed has a part in the shares. A pod of 16 GPUs on nodes of 8, a
selector that no node matches, a gang that lacks pods or that no domain of its topology could hold,
or work larger than a limit of its queue would take from the shares of others without using it.

A workload that may use several pools counts in the first of them that could hold it. In a later
one it counts if the share of its queue in the first leaves some of the queue's demand unmet.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from extender.api.reasons import Reason
from extender.policy.queues.fairshare import set_shares
from extender.policy.queues.queue import RESOURCES, Queue, add, frozen, subtract
from extender.policy.queues.tree import PoolQueues, pod_amounts, startable, sum_amounts, tally_of
from extender.policy.session import Session
from extender.policy.workloads.pending import Pending
from extender.state.model import Amounts, PodView, WorkloadView

#: Reasons for which none of a workload can start until its owner does something.
_CANNOT_START: Final = (
    Reason.GANG_INCOMPLETE,
    Reason.HELD_BY_OTHER_GATE,
    Reason.HELD_BY_OWNER,
)


def set_fair_shares(session: Session) -> None:
    """Set the shares in every pool but `demand-weighted` ones. Costs one pass over what waits, and
    a second division of pools that are the second choice of work that does not fit its first."""
    pools = session.snapshot.pools
    names = [name for name in session.queues if pools[name].policy != "demand-weighted"]
    demand = _CountedDemand(session, frozenset(names))
    demand.leave_out_what_cannot_start()
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
class _Later:
    """Waiting pods of a workload left out of the demand of `pool`, which is not its first choice;
    `first` is its queue there."""

    pool: str
    first: Queue
    leaf: Queue
    amounts: Amounts
    is_np: bool


@dataclass(slots=True)
class _CountedDemand:
    """What waiting work adds to the demand of queues in the pools of these names."""

    session: Session
    names: frozenset[str]

    def leave_out_what_cannot_start(self) -> None:
        """Workloads that cannot be tried, and in each pool those that it could never hold."""
        session = self.session
        for key in sorted(tally_of(session.snapshot).waiting & session.waits.keys()):
            if session.waits[key].reason in _CANNOT_START:
                workload = session.snapshot.workloads[key]
                for pool in dict.fromkeys(workload.pools):
                    self._leave_out(workload, pool, startable(workload))
        for pending in session.pending:
            workload = pending.workload
            for pool in dict.fromkeys(workload.pools):
                # Pods of a gang stay in the pool of those that run.
                if pool not in pending.pools or not self._could_hold(pending, pool):
                    self._leave_out(workload, pool, pending.waiting)
                self._leave_out(workload, pool, pending.left_out, instead=pending.taken_in)

    def leave_out_later_choices(self) -> list[_Later]:
        """The workloads that may use several pools, in all but the first that could hold them."""
        found = []
        for pending in self.session.pending:
            if len(pending.pools) == 1:
                continue
            usable = [pool for pool in pending.pools if self._could_hold(pending, pool)]
            for pool in usable[1:]:
                if pool in self.names and usable[0] in self.names:
                    found.append(self._as_later(pending, pool, usable[0]))
        for each in found:
            _leave_out(each.leaf, each.amounts, is_np=each.is_np)
        return found

    def add_unmet(self, later: Iterable[_Later]) -> set[str]:
        """Add the demand that the first choice does not meet to the others; returns their names."""
        unmet: dict[tuple[Queue, str], list[int]] = {}
        changed = set()
        for each in later:
            first = each.first
            left = unmet.setdefault(
                (first, each.pool),
                [_wanted(first, r) - first.exact_share[r] for r in RESOURCES],
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

    def _as_later(self, pending: Pending, pool: str, first: str) -> _Later:
        session, workload = self.session, pending.workload
        queues = session.queues[pool]
        return _Later(
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
    """What the pods count in the demand of the pool."""
    return sum_amounts(pod_amounts(pod.demand, queues.smallest_card_mib) for pod in pods)


def _leave_out(leaf: Queue, amounts: Amounts, *, is_np: bool) -> None:
    add(leaf.uncounted, amounts)
    if is_np:
        add(leaf.uncounted_np, amounts)


def _wanted(leaf: Queue, resource: int) -> int:
    """What the queue holds and what counts of its waiting work."""
    return leaf.allocated[resource] + leaf.pending[resource] - leaf.uncounted[resource]
