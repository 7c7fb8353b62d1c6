"""The workloads of a cycle that are still to be placed, by when they are served."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from extender.policy.queues.queue import Queue
from extender.policy.workloads.pending import Pending, SortKey
from extender.state.model import PodView


@dataclass(slots=True)
class Backlog:
    """`pending` are served by every stage, `deferred` only after reclaim, `yielding` only after
    preemption; `left_out` are not served in this round but count in the shares. `blocked` are those
    of which a chunk did not fit in `allocate`, by pool."""

    pending: list[Pending] = field(default_factory=list)
    deferred: list[Pending] = field(default_factory=list)
    yielding: list[Pending] = field(default_factory=list)
    left_out: list[Pending] = field(default_factory=list)
    blocked: dict[str, list[tuple[Queue, Pending, Sequence[PodView]]]] = field(default_factory=dict)

    def in_pool(self, pool: str) -> list[Pending]:
        """The pending workloads that may use the pool."""
        return [pending for pending in self.pending if pool in pending.pools]

    def pools(self) -> list[str]:
        """The node pools of the pending workloads, in the order of `pools_in_order`."""
        return pools_in_order(self.pending)

    def settle(self, served: Iterable[Pending], left: Iterable[Pending]) -> None:
        """Remove the workloads of `served` that are not in `left` from `pending`."""
        gone = {id(pending) for pending in served} - {id(pending) for pending in left}
        self.pending = [pending for pending in self.pending if id(pending) not in gone]

    def take_deferred(self, *, with_yielding: bool) -> list[Pending]:
        """Remove the deferred workloads, and then the yielding ones if asked; returns them."""
        taken, self.deferred = self.deferred, []
        if with_yielding:
            taken += self.yielding
            self.yielding = []
        return taken

    def leave_out(self, is_left_out: Callable[[Pending], bool]) -> None:
        """Leave these pending workloads out of the round."""
        self.left_out = [pending for pending in self.pending if is_left_out(pending)]
        self.pending = [pending for pending in self.pending if not is_left_out(pending)]


def pools_in_order(waiting: Sequence[Pending]) -> list[str]:
    """The node pools of these workloads: first those that are no workload's second choice; among
    equals, first the first choice of the workload that is to start first."""
    named = {pool for pools in {pending.pools for pending in waiting} for pool in pools}
    if len(named) < 2:
        return list(named)
    latest: dict[str, int] = {}
    first: dict[str, SortKey] = {}
    keys: dict[tuple[str, ...], list[SortKey]] = {}
    for pending in waiting:
        if pending.only_holds_up:
            latest |= dict.fromkeys(pending.pools, 0)
        elif pending.pools:
            keys.setdefault(pending.pools, []).append(pending.sort_key)
    for pools, listed in keys.items():
        for position, pool in enumerate(pools):
            latest[pool] = max(position, latest.get(pool, 0))
        chosen, key = pools[0], min(listed)
        first[chosen] = min(first.get(chosen, key), key)
    return sorted(
        latest, key=lambda pool: (latest[pool], pool not in first, first.get(pool, ()), pool)
    )
