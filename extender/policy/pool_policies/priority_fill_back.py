"""Who can stay after all once everybody has been served, in pools of policy `priority`."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from extender.policy.plan import Placement
from extender.policy.pool_policies.displacement import Taken
from extender.policy.pool_policies.eviction_units import Unit, may_stay
from extender.policy.preemption.statement import is_over
from extender.policy.queues.tree import RESOURCES, held_pool
from extender.policy.session import Session, placed_amounts
from extender.policy.workloads.gangs import has_topology, is_gang, live_pods
from extender.policy.workloads.pending import Pending
from extender.state.model import PodView, WorkloadView


def spare_together(session: Session, taken: Sequence[Taken]) -> list[Taken]:
    """Let stay who is not needed once all have been served, the last to be chosen first.

    What was freed for one workload and not used may serve another, which is placed again if need
    be. Returns who still has to leave.
    """
    going: dict[str, list[Unit]] = {}
    for unit, _ in taken:
        going.setdefault(unit.workload.key, []).append(unit)
    waiting = _waiting_by_node(session) if taken else {}
    spared: set[int] = set()
    for unit, taker in reversed(taken):
        siblings = going[unit.workload.key]
        if may_stay(unit, siblings) and _can_spare(session, unit, taker, waiting):
            siblings.remove(unit)
            spared.add(id(unit))
    left = [(unit, taker) for unit, taker in taken if id(unit) not in spared]
    last = {unit.workload.key: taker for unit, taker in left}
    # Work that goes whole goes for the one who took the last of it: no part could stay alone.
    return [
        (unit, last[unit.workload.key] if _goes_whole(unit, going) else taker)
        for unit, taker in left
    ]


_Waiting = Mapping[str, Mapping[str, WorkloadView]]


def _waiting_by_node(session: Session) -> _Waiting:
    """By node, the workloads that are given places there and have to wait for them."""
    found: dict[str, dict[str, WorkloadView]] = {}
    for workload, placement in session.given_now("nominated"):
        found.setdefault(placement.node, {})[workload.key] = workload
    return found


def _goes_whole(unit: Unit, going: Mapping[str, Sequence[Unit]]) -> bool:
    """Whether nothing of the unit's workload stays."""
    n_going = sum(len(each.pods) for each in going[unit.workload.key])
    return n_going == len(live_pods(unit.workload))


_Places = Sequence[Placement]


@dataclass(slots=True, frozen=True)
class _Change:
    """Places that a taker gives up, which of them are looked for together instead, and in which
    pools."""

    taker: WorkloadView
    given_up: _Places
    groups: Sequence[_Places]
    pools: Sequence[str]


def _can_spare(session: Session, unit: Unit, taker: WorkloadView, waiting: _Waiting) -> bool:
    """Whether the takers have places without it; if so they are theirs, and the unit stays."""
    sim = session.sim
    mark, lonely = sim.checkpoint(), session.places.beside.lonely()
    unit.stay(session)
    for changes in _ways(session, unit, taker, waiting) if _may_return(session, unit) else ():
        before = sim.checkpoint()
        if (instead := _make(session, changes, unit)) is not None:
            is_anybody_alone = session.places.beside.leaves_alone(lonely)
            if unit.is_apart(session) and not is_anybody_alone:
                for change, places in zip(changes, instead, strict=True):
                    session.replace(change.taker.key, change.given_up, places)
                return True
        sim.rollback(before)
    sim.rollback(mark)
    return False


def _make(session: Session, changes: Sequence[_Change], unit: Unit) -> list[_Places] | None:
    """The new places, change by change, if the unit can stay with them; otherwise the caller rolls
    back what was tried."""
    sim, ix_of = session.sim, session.sim.later.cards.ix
    for change in changes:
        for placement in change.given_up:
            sim.unhold(ix_of[placement.node], placement.pod, placement.cards)
    if any(is_over(sim.later, ix_of[pod.node]) for pod in unit.pods):
        return None
    found: list[_Places] = []
    for change in changes:
        again = [
            _place_again(session, change.taker, group, change.pools) for group in change.groups
        ]
        if not all(again):
            return None
        found.append([place for group in again for place in group])
    return found


def _may_return(session: Session, unit: Unit) -> bool:
    """Whether no queue is over its limit because the unit, which was to go, stays, and others in
    the queue were given places."""
    over = {q for q in unit.leaf.chain if any(q.allocated[r] > q.limit[r] for r in RESOURCES)}
    if not over:
        return True
    pool, workloads = held_pool(session.snapshot, unit.pods[0]), session.snapshot.workloads
    growing = (session.queues[pool].leaf_of(workloads[key]) for key in session.served())
    return not any(over.intersection(leaf.chain) for leaf in growing if leaf is not None)


def _ways(
    session: Session, unit: Unit, taker: WorkloadView, waiting: _Waiting
) -> Iterator[Sequence[_Change]]:
    """Which places the taker may give up so that the unit stays, and then others with it.

    A gang stays in its pool, or all of it goes to another.
    """
    snapshot, nodes = session.snapshot, {pod.node for pod in unit.pods}
    here, given = held_pool(snapshot, unit.pods[0]), session.awaited_now(taker.key)
    moved = _given_up(session, taker, nodes)
    others = [
        pool
        for pool in taker.pools
        if pool != here and pool in session.queues and snapshot.pools[pool].policy == "priority"
    ]
    if others and not is_gang(taker):
        own = _Change(taker, moved, [(placement,) for placement in moved], [here, *others])
    else:
        own = _Change(taker, moved, [moved] if moved else [], [here])
    yield [own]
    is_whole = len(given) == len(session.placed_now(taker.key)) and not live_pods(taker)
    if others and is_whole and is_gang(taker):
        yield [_Change(taker, given, [given], others)]
    neighbours = {
        key: each
        for node in nodes
        for key, each in waiting.get(node, {}).items()
        if each is not taker
    }
    if neighbours:
        changes = [own]
        for each in neighbours.values():
            if there := _given_up(session, each, nodes):
                changes.append(_Change(each, there, [there], [here]))
        yield changes


def _given_up(session: Session, taker: WorkloadView, nodes: Collection[str]) -> _Places:
    """The places on these nodes for which the taker waits; all of them where its pods ask for
    nearness, so that they can go somewhere else together."""
    given = session.awaited_now(taker.key)
    there = [placement for placement in given if placement.node in nodes]
    return given if there and has_topology(taker) else there


def _place_again(
    session: Session, taker: WorkloadView, given_up: _Places, pools: Sequence[str]
) -> _Places:
    """Places instead of those in the first of the pools that has them, held and charged; or none,
    and nothing changed."""
    pods, before = [placement.pod for placement in given_up], placed_amounts(given_up)
    here = session.snapshot.nodes.pool[session.sim.later.cards.ix[given_up[0].node]]
    is_np = not taker.is_preemptible
    for pool in pools:
        leaf = session.queues[pool].leaf_of(taker)
        mark = session.sim.checkpoint()
        session.sim.discharge(session.queue_of(taker, here), before, is_np=is_np)
        session.places.forget_failures(pool)
        again = _place_together(session, taker, pods, pool) if leaf else None
        if leaf and again:
            amounts = placed_amounts(again)
            if session.check_room(leaf, taker, amounts, "later") is None:
                session.sim.charge(leaf, amounts, is_np=is_np)
                return again
        session.sim.rollback(mark)
    return ()


def _place_together(
    session: Session, taker: WorkloadView, pods: Sequence[PodView], pool: str
) -> _Places | None:
    """Places for these pods of the taker, held, in what is free later."""
    if not has_topology(taker):
        return session.places.place_in(pods, pool, "later")
    uids = {pod.uid for pod in pods}
    kept = [place for place in session.placed_now(taker.key) if place.pod.uid not in uids]
    live = [*live_pods(taker), *(place.pod for place in kept)]
    nodes = {place.pod.uid: place.node for place in kept}
    pending = Pending(taker, pods, (pool,), live=live, nodes=nodes)
    return session.places.place_chunk(pending, pool, "later", pods)
