"""Nominations of earlier cycles: pods in state `nominated`.

A nomination lasts until its resources are free and it becomes a reservation, or until they can no
longer come free: the node is gone or in none of the workload's node pools, no pod on it is
terminating, the queue has no room, or the user put the workload on hold. The oldest nomination is
served first. Runs before shares are divided, on the snapshot's own table. Later stages may give
nominations up for work that could evict the workload if it ran (`preemption.candidate_table`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from extender.api.names import ANNOTATION_HOLD
from extender.api.reasons import Reason, Refused
from extender.policy.placement.simulation import MOMENTS, Moment, Simulation, has_room
from extender.policy.plan import Placement
from extender.policy.queues.queue import Queue, add
from extender.policy.queues.room import check_room
from extender.policy.queues.tree import held_pool, tally_of
from extender.policy.session import Session
from extender.policy.workloads.terminating import Leaving
from extender.state.model import Amounts, PodView, WorkloadView
from extender.state.tally import held_amounts, sum_amounts


@dataclass(slots=True)
class _Nomination:
    """Nominated pods of a workload, and what they hold in their queues.

    `places` has each pod with the ix of its node, without pods on unknown nodes.
    """

    workload: WorkloadView
    pods: Sequence[PodView]
    places: Sequence[tuple[PodView, int]]
    amounts: Amounts


def resolve_nominations(session: Session) -> None:
    """Reserve the nominations whose resources are free, drop those that can no longer be met."""
    nominations = _find(session)
    if not nominations:
        return
    leaving = Leaving(session.snapshot)
    for nomination in nominations:
        for pod, ix in nomination.places:
            session.sim.unhold(ix, pod, pod.cards)
    for nomination in nominations:
        key, draft = nomination.workload.key, session.draft
        is_dropped = key in session.snapshot.dropped
        moment = None if is_dropped else _hold_when_free(session, nomination)
        if moment == "now":
            placements = [Placement(pod, pod.node, pod.cards) for pod in nomination.pods]
            session.confirm(nomination.workload, placements, "reserved")
        elif moment == "later":
            why = leaving.describe_wait(nomination.workload, nomination.pods)
            draft.waits[key] = Refused(Reason.WAITING_FOR_VICTIMS, f"{key}: {why}")
        else:
            draft.drop(key, nomination.pods)
            _uncharge(session, nomination)
            draft.waits[key] = Refused(
                Reason.WAITING_FOR_TURN, f"{key}: its promised place will not come free"
            )


def _find(session: Session) -> list[_Nomination]:
    found = []
    mib = max((queues.smallest_card_mib for queues in session.queues.values()), default=0)
    for key in sorted(tally_of(session.snapshot).nominated):
        workload = session.snapshot.workloads[key]
        pods = [p for p in workload.pods if p.state == "nominated" and not p.is_terminating]
        if pods:
            pods.sort(key=lambda pod: pod.key)
            nodes = ((pod, session.snapshot.nodes.ix_of(pod.node)) for pod in pods)
            places = [(pod, ix) for pod, ix in nodes if ix is not None]
            amounts = sum_amounts(held_amounts(pod, mib) for pod in pods)
            found.append(_Nomination(workload, pods, places, amounts))
    found.sort(key=_age)
    return found


def _age(nomination: _Nomination) -> tuple[int, int, str]:
    workload = nomination.workload
    return min(pod.epoch for pod in nomination.pods), workload.created_at, workload.key


def _hold_when_free(session: Session, nomination: _Nomination) -> Moment | None:
    """Hold the nominated resources in both tables; returns when all of them are free."""
    leaves = _queues_of(session, nomination)
    if not leaves:
        return None
    mark = session.sim.checkpoint()
    for moment in MOMENTS:
        # Room on the node first: it is checked faster, and is what most nominations lack now.
        if _hold(session.sim, nomination, moment):
            if all(_has_queue_room(session, nomination, leaf, moment) for leaf in leaves):
                return moment
            session.sim.rollback(mark)
    return None


def _queues_of(session: Session, nomination: _Nomination) -> list[Queue]:
    """The queues that count the nomination; empty if gang, hold, nodes or pools exclude it."""
    workload, nodes = nomination.workload, session.snapshot.nodes
    n_live = sum(
        bool(p.next_node) or (p.state in ("reserved", "bound") and not p.is_terminating)
        for p in workload.pods
    )
    if n_live + len(nomination.pods) < workload.min_member:
        return []
    if any(ANNOTATION_HOLD in pod.other_gates for pod in nomination.pods):
        return []
    places = nomination.places
    if len(places) < len(nomination.pods) or not all(nodes.is_ready[ix] for _, ix in places):
        return []
    leaves = []
    for pool in {held_pool(session.snapshot, pod) for pod in nomination.pods}:
        queues = session.queues.get(pool) if pool in workload.pools else None
        leaf = queues.leaf_of(workload) if queues else None
        if leaf is None:
            return []
        leaves.append(leaf)
    return leaves


def _has_queue_room(session: Session, nomination: _Nomination, leaf: Queue, moment: Moment) -> bool:
    """Whether limits and quotas allow what the queues already count for the nomination."""
    is_np = not nomination.workload.is_preemptible
    mark = session.sim.checkpoint()
    session.sim.discharge(leaf, nomination.amounts, is_np=is_np)
    refused = check_room(leaf, nomination.workload, nomination.amounts, is_now=moment == "now")
    session.sim.rollback(mark)
    return refused is None


def _hold(sim: Simulation, nomination: _Nomination, moment: Moment) -> bool:
    """Hold the nominated resources in both tables if all of them are free at that moment."""
    mark, table = sim.checkpoint(), sim.table(moment)
    for pod, ix in nomination.places:
        if not has_room(table, ix, pod, pod.cards):
            sim.rollback(mark)
            return False
        sim.hold(ix, pod, pod.cards)
    return True


def _uncharge(session: Session, nomination: _Nomination) -> None:
    """Count the nomination as pending in its queues, no longer as allocated."""
    is_np = not nomination.workload.is_preemptible
    for pod in nomination.pods:
        queues = session.queues.get(held_pool(session.snapshot, pod))
        leaf = queues.leaf_of(nomination.workload) if queues else None
        if queues is None or leaf is None:
            continue
        amounts = held_amounts(pod, queues.smallest_card_mib)
        session.sim.discharge(leaf, amounts, is_np=is_np)
        for queue in leaf.chain:
            add(queue.pending, amounts)
            if is_np:
                add(queue.pending_np, amounts)
