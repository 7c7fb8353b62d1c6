"""Floors: which running replicas are kept for their owner and not evicted for other workloads.

A floor of N keeps the N longest running replicas of an owner, as far as the quota for
non-preemptible workloads allows in each node pool where they run. A replica is a single pod or a
gang.
Within one decision a kept replica is non-preemptible, so all rules for such workloads apply to it.
Nothing is stored. A kept replica stays kept, since no later replica precedes it, and other
non-preemptible workloads start only within the quota that kept replicas leave. When one ends, the
next is kept. There are two exceptions. A longer running replica that was too large for the quota
comes first once it fits. Other workloads may take the quota of a pod that a kept gang lacks.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from msgspec import structs

from extender.policy.queues.queue import Queue, add
from extender.policy.queues.tree import PoolQueues, build_queues, held_pool, tally_of
from extender.state.model import Amounts, PodView, WorkloadView
from extender.state.snapshot import Snapshot
from extender.state.tally import held_amounts, sum_amounts

#: Namespace and owner.
_Owner = tuple[str, str]
_NOT_STARTED: Final = 1 << 62


def keep_floors(snapshot: Snapshot) -> tuple[Snapshot, frozenset[str]]:
    """The snapshot with kept replicas as non-preemptible workloads, and their keys.

    If no owner states a floor, this returns the snapshot itself at no cost. Otherwise it costs one
    more queue tree and a copy of the workloads.
    """
    tally = tally_of(snapshot)
    if not tally.replicas:
        return snapshot, frozenset()
    kept = {each.key: each for each in _kept_replicas(snapshot)}
    tally, workloads = tally.copy(), dict(snapshot.workloads)
    for key, workload in kept.items():
        workloads[key] = structs.replace(workload, is_preemptible=False)
        tally.replace(workload, workloads[key])
    return replace(snapshot, workloads=workloads, tally=tally), frozenset(kept)


def _kept_replicas(snapshot: Snapshot) -> Iterator[WorkloadView]:
    replicas = [snapshot.workloads[key] for key in tally_of(snapshot).replicas]
    left = _floors(replicas)
    # A private tree, since it is charged below.
    pools = build_queues(snapshot)
    for workload in sorted(filter(runs, replicas), key=_longest_running_first):
        owner = _owner_of(workload)
        if not left[owner] or not workload.is_preemptible:
            continue
        charges = _charges(snapshot, pools, workload)
        if charges and all(leaf.may_hold_np(amounts) for leaf, amounts in charges):
            left[owner] -= 1
            for leaf, amounts in charges:
                for queue in leaf.chain:
                    add(queue.allocated_np, amounts)
            yield workload


def _floors(replicas: Iterable[WorkloadView]) -> dict[_Owner, int]:
    """The floor that the youngest replica of each owner states."""
    youngest: dict[_Owner, tuple[int, int]] = {}
    for workload in replicas:
        assert workload.replica is not None
        stated = workload.created_at, workload.replica.floor
        owner = _owner_of(workload)
        youngest[owner] = max(stated, youngest.get(owner, stated))
    return {owner: floor for owner, (_, floor) in youngest.items()}


def _owner_of(workload: WorkloadView) -> _Owner:
    assert workload.replica is not None
    return workload.namespace, workload.replica.owner


def _live(workload: WorkloadView) -> list[PodView]:
    """Reserved and bound pods that are not terminating."""
    return [
        pod
        for pod in workload.pods
        if pod.state in ("reserved", "bound") and not pod.is_terminating
    ]


def runs(workload: WorkloadView) -> bool:
    """Whether any pod of the replica is reserved or bound, and not terminating."""
    return bool(_live(workload))


def _longest_running_first(workload: WorkloadView) -> tuple[tuple[int, int], int, str]:
    return min(map(_since, _live(workload))), workload.created_at, workload.key


def _since(pod: PodView) -> tuple[int, int]:
    """Sort key for the pod's start: the number of its plan, which is exact, else its start time."""
    return pod.epoch, 0 if pod.epoch else pod.started_at or _NOT_STARTED


def _charges(
    snapshot: Snapshot, pools: Mapping[str, PoolQueues], workload: WorkloadView
) -> list[tuple[Queue, Amounts]]:
    """The allocation and requests of the whole replica, by the charged queue of each node pool.

    Pods that are not placed count in the pool of the longest running pod. Empty if a queue is
    unknown.
    """
    first = min(_live(workload), key=lambda pod: (_since(pod), pod.uid))
    usual = held_pool(snapshot, first)
    by_pool: dict[str, list[PodView]] = {}
    for pod in workload.pods:
        if not pod.is_terminating:
            by_pool.setdefault(held_pool(snapshot, pod) or usual, []).append(pod)
    charges = []
    for name, pods in by_pool.items():
        queues = pools.get(name)
        leaf = queues.leaf_of(workload) if queues else None
        if queues is None or leaf is None:
            return []
        amounts = sum_amounts(held_amounts(pod, queues.smallest_card_mib) for pod in pods)
        charges.append((leaf, amounts))
    return charges
