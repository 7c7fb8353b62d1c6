"""Nominations of earlier cycles: pods in state `nominated`.

A nomination stands until its place is free (it then becomes a reservation of that place) or can no
longer come free: the node is gone or in none of the workload's node pools any more, no pod is
leaving it, the queue may no longer hold it, or the owner holds the workload meanwhile. The oldest
nomination is served first. Runs before shares are divided, on the snapshot's own table.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from extender.api.names import ANNOTATION_HOLD
from extender.api.reasons import Reason, Refused
from extender.policy.placement.placer import has_room
from extender.policy.placement.simulation import Moment
from extender.policy.plan import Placement
from extender.policy.queues.queue import Queue, add
from extender.policy.queues.room import check_room
from extender.policy.queues.tree import held_amounts, held_pool, sum_amounts, tally_of
from extender.policy.session import Session
from extender.policy.workloads.terminating import Leaving
from extender.state.model import PodView, WorkloadView
from extender.state.nodes import NodeTable


@dataclass(slots=True)
class _Promise:
    workload: WorkloadView
    pods: Sequence[PodView]


def resolve_nominations(session: Session) -> None:
    """Turn promises into admissions where they came true, give up those that can't."""
    promises = _find(session)
    if not promises:
        return
    leaving = Leaving(session.snapshot)
    sim = session.sim
    for promise in promises:
        for pod, ix in _places(session, promise):
            sim.unhold(ix, pod, pod.cards)
    for promise in promises:
        key = promise.workload.key
        if _may_still(session, promise, "now") and _hold(session, promise, sim.now):
            placements = [Placement(pod, pod.node, pod.cards) for pod in promise.pods]
            session.confirm(promise.workload, placements, "reserved")
        elif _may_still(session, promise, "later") and _hold(session, promise, sim.later):
            why = leaving.told(promise.workload, promise.pods)
            session.waits[key] = Refused(Reason.WAITING_FOR_VICTIMS, f"{key}: {why}")
        else:
            session.drops.append(key)
            _uncharge(session, promise)
            session.waits[key] = Refused(
                Reason.WAITING_FOR_TURN, f"{key}: its promised place will not come free"
            )


def _find(session: Session) -> list[_Promise]:
    found = []
    for key in sorted(tally_of(session.snapshot).nominated):
        workload = session.snapshot.workloads[key]
        pods = [p for p in workload.pods if p.state == "nominated" and not p.is_terminating]
        if pods:
            pods.sort(key=lambda pod: pod.key)
            found.append(_Promise(workload, pods))
    found.sort(key=_age)
    return found


def _age(promise: _Promise) -> tuple[int, int, str]:
    workload = promise.workload
    return min(pod.epoch for pod in promise.pods), workload.created_at, workload.key


def _places(session: Session, promise: _Promise) -> list[tuple[PodView, int]]:
    """The pods with their nodes; pods on unknown nodes are left out."""
    found = ((pod, session.snapshot.nodes.ix_of(pod.node)) for pod in promise.pods)
    return [(pod, ix) for pod, ix in found if ix is not None]


def _may_still(session: Session, promise: _Promise, moment: Moment) -> bool:
    """Whether gang, nodes and queues still allow it; what it holds is counted in the queues."""
    workload, nodes = promise.workload, session.snapshot.nodes
    n_live = sum(
        bool(p.next_node) or (p.state in ("reserved", "bound") and not p.is_terminating)
        for p in workload.pods
    )
    if n_live + len(promise.pods) < workload.min_member:
        return False
    if any(ANNOTATION_HOLD in pod.other_gates for pod in promise.pods):
        return False
    places = _places(session, promise)
    if len(places) < len(promise.pods) or not all(nodes.is_ready[ix] for _, ix in places):
        return False
    for pool in {held_pool(session.snapshot, pod) for pod in promise.pods}:
        if pool not in workload.pools:
            return False
        queues = session.queues.get(pool)
        leaf = queues.leaf_of(workload) if queues else None
        if leaf is None or not _may_hold(session, promise, leaf, moment):
            return False
    return True


def _may_hold(session: Session, promise: _Promise, leaf: Queue, moment: Moment) -> bool:
    """Whether limits and quotas allow what the queues already count for the promise."""
    mib = max(queues.smallest_card_mib for queues in session.queues.values())
    amounts = sum_amounts(held_amounts(pod, mib) for pod in promise.pods)
    is_np = not promise.workload.is_preemptible
    mark = session.sim.checkpoint()
    session.sim.discharge(leaf, amounts, is_np=is_np)
    refused = check_room(leaf, promise.workload, amounts, is_now=moment == "now")
    session.sim.rollback(mark)
    return refused is None


def _hold(session: Session, promise: _Promise, table: NodeTable) -> bool:
    """Hold all places in both tables if `table` has room for them, else none."""
    sim = session.sim
    mark = sim.checkpoint()
    for pod, ix in _places(session, promise):
        if not has_room(table, ix, pod, pod.cards):
            sim.rollback(mark)
            return False
        sim.hold(ix, pod, pod.cards)
    return True


def _uncharge(session: Session, promise: _Promise) -> None:
    """The queues hold it no longer: it asks again."""
    is_np = not promise.workload.is_preemptible
    for pod in promise.pods:
        queues = session.queues.get(held_pool(session.snapshot, pod))
        leaf = queues.leaf_of(promise.workload) if queues else None
        if queues is None or leaf is None:
            continue
        amounts = held_amounts(pod, queues.smallest_card_mib)
        session.sim.discharge(leaf, amounts, is_np=is_np)
        for queue in leaf.chain:
            add(queue.pending, amounts)
            if is_np:
                add(queue.pending_np, amounts)
