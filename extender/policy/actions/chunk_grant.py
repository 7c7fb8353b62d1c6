"""Giving a workload its next chunk: a place, within limits and quotas, or the reason why not."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from extender.api.reasons import Refused
from extender.policy.placement.placer import Moment
from extender.policy.queues.tree import Queue, sum_amounts
from extender.policy.session import Session, placed_amounts
from extender.policy.workloads.gangs import has_topology
from extender.policy.workloads.pending import Pending
from extender.policy.workloads.pod_classes import shapes_of
from extender.state.model import Amounts, PodView, WorkloadView

#: Why the workload's queue may not take so much more by its policy, or None when it may.
Bound = Callable[[Queue, Pending, Amounts], Refused | None]

#: So many pods or fewer of a workload change places so that one more can start.
_FEW_PODS: Final = 16


def grant(
    session: Session,
    pending: Pending,
    pool: str,
    moment: Moment,
    *,
    bound: Bound | None = None,
    chunks: Iterable[Sequence[PodView]] | None = None,
) -> Pending | Refused | None:
    """Admit the next chunk in the pool, reserved or (`later`) nominated; or why it has to wait.

    Returns what still waits of the workload afterwards. `bound` may refuse before anything is held;
    `chunks` are tried instead of those that come next.
    """
    leaf = session.queue_of(pending.workload, pool)

    def check(amounts: Amounts) -> Refused | None:
        why = bound(leaf, pending, amounts) if bound else None
        return why or session.check_room(leaf, pending.workload, amounts, moment)

    refused: Refused | None = None
    for chunk in pending.chunks() if chunks is None else chunks:
        why = check(pending.need_of(chunk))
        if why is None:
            mark = session.sim.checkpoint()
            placed = session.places.place_chunk(pending, pool, moment, chunk)
            if placed is not None:
                # So much memory is more of a small card than of the largest.
                why = check(sum_amounts(placement.amounts for placement in placed))
                if why is None:
                    state = "reserved" if moment == "now" else "nominated"
                    return session.admit(pending, placed, pool, state)  # type: ignore[arg-type]
                session.sim.rollback(mark)
        refused = refused or why or session.shortages.explain(pending, pool)
    assert refused is not None
    return refused


def has_place_in(
    session: Session,
    pending: Pending,
    chunk: Sequence[PodView],
    pools: Iterable[str],
    moment: Moment,
) -> bool:
    """Whether any of the pools has places for the chunk, and its queue there room; holds none."""
    need = pending.need_of(chunk)
    for pool in pools:
        leaf = session.queues[pool].leaf_of(pending.workload)
        if leaf is None or session.check_room(leaf, pending.workload, need, moment) is not None:
            continue
        mark = session.sim.checkpoint()
        placed = session.places.place_chunk(pending, pool, moment, chunk)
        session.sim.rollback(mark)
        if placed is not None:
            return True
    return False


def will_have_place(
    session: Session, pending: Pending, chunk: Sequence[PodView], pool: str
) -> bool:
    """Whether the chunk needs nobody's place in the next cycle: in this one it may go nowhere but
    beside a pod that starts as the first of its kind."""
    beside = session.places.beside
    if not beside.follows(chunk):
        return False
    with beside.as_in_the_next_cycle():
        return has_place_in(session, pending, chunk, [pool], "later")


def start_together(
    session: Session, pending: Pending, pool: str, refused: Refused
) -> Pending | Refused | None:
    """Start the next chunk, for which others would have to leave, by giving other places to pods of
    the workload that start in this cycle; or `refused`, and nothing changes. As `grant`."""
    workload, places, sim = pending.workload, session.places, session.sim
    own = session.starting(workload.key, pool)
    pods = [*(placement.pod for placement in own), *pending.chunk]
    if not own or len(pods) > _FEW_PODS or not _may_differ(session, workload, pods):
        return refused
    leaf, is_np = session.queue_of(workload, pool), not workload.is_preemptible
    session.count_leaving()
    if session.check_room(leaf, workload, pending.need(), "now") is not None:
        return refused
    mark, lonely = sim.checkpoint(), places.beside.lonely()
    sim.discharge(leaf, placed_amounts(own), is_np=is_np)
    for placement in own:
        sim.unhold(sim.now.cards.ix[placement.node], placement.pod, placement.cards)
    by_uid = {p.pod.uid: p for p in places.place_anew(pending, pool, "now", pods) or ()}
    amounts = placed_amounts(list(by_uid.values()))
    is_anybody_alone = places.beside.leaves_alone(lonely)
    if not by_uid or is_anybody_alone or session.check_room(leaf, workload, amounts, "now"):
        sim.rollback(mark)
        return refused
    again = [by_uid[placement.pod.uid] for placement in own]
    places.forget_failures(pool, "now")
    sim.charge(leaf, placed_amounts(again), is_np=is_np)
    session.replace(workload.key, own, again, "reserved")
    pending.nodes.update((placement.pod.uid, placement.node) for placement in again)
    return session.admit(pending, [by_uid[pod.uid] for pod in pending.chunk], pool, "reserved")


def _may_differ(session: Session, workload: WorkloadView, pods: Sequence[PodView]) -> bool:
    """Whether all of them together may have places that they have not one after the other."""
    if has_topology(workload) or len(shapes_of(pods)) > 1:
        return True
    return session.places.beside.concerns(pods)
