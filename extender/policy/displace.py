"""The least that must leave so that as much of a workload fits as can, in policy `priority`."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from extender.policy.chunks import Pending
from extender.policy.groups import has_topology, is_gang, live_pods, next_chunk
from extender.policy.plan import Placement
from extender.policy.queues import RESOURCES, held_pool
from extender.policy.session import Session, placed_amounts
from extender.policy.stops import Unit, may_stay, parts_of
from extender.policy.trial import is_over
from extender.state.model import PodView, WorkloadView

#: Pods that leave, and the workload for which they do.
Taken = tuple[Unit, WorkloadView]


@dataclass(slots=True)
class Displacement:
    """Searches in one pool. What a search chooses has left in the simulation; after one in vain the
    caller rolls that back. `split` has the keys of work of which a part was let stay, `gone` the
    uids of pods that leave by former searches."""

    session: Session
    pool: str
    split: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    _lonely: set[str] = field(default_factory=set)
    _usable: dict[frozenset[int], tuple[Sequence[PodView], set[str]]] = field(default_factory=dict)

    def find(
        self, pending: Pending, units: Iterable[Unit]
    ) -> tuple[Sequence[PodView], list[Unit]] | None:
        """As much of the workload as fits once others leave, and who has to leave so that it does:
        none of them could stay. None when nothing of it fits.

        `units` come in the order in which they are to go, and no more of them are read than are
        needed where the workload has only one chunk. Places are tried O(log) times in what there
        is of pods and units, and then once for every unit on the nodes that the workload gets.
        """
        self._lonely = self.session.places.beside.lonely()
        useful: Iterable[Unit] = _useful(units, self._usable_nodes(pending))
        chunk: Sequence[PodView] = pending.chunk
        if len(chunk) < len(pending.waiting):
            everything = list(useful)
            chunk = self._most_without(pending, everything)
            useful = everything
        leaving = self._least_prefix(pending, chunk, useful) if chunk else []
        if leaving:
            leaving = self._spare(pending, chunk, leaving)
        self.session.places.forget_failures(self.pool)
        return (chunk, leaving) if leaving else None

    def _usable_nodes(self, pending: Pending) -> set[str]:
        """Names of nodes that any of its pods may use. Pods are kept beside the ids of their
        constraints, so that an id can't be used again."""
        kinds = {id(pod.constraints): pod.constraints for pod in pending.waiting}
        key = frozenset(kinds)
        if key not in self._usable:
            places, names = self.session.places, self.session.sim.later.cards.names
            found = {
                names[ix]
                for constraints in kinds.values()
                for ix in places.matcher.candidates(self.pool, constraints)
            }
            self._usable[key] = pending.waiting, found
        return self._usable[key][1]

    def _portions(self, pending: Pending) -> Iterator[list[PodView]]:
        """What could be started together: the next chunk, that and the one after it, and so on, as
        long as the queue's bounds allow."""
        session, workload = self.session, pending.workload
        leaf = session.queue_of(workload, self.pool)
        live, waiting, chosen = list(pending.live), list(pending.waiting), list[PodView]()
        while portion := next_chunk(workload, live, waiting):
            chosen = [*chosen, *portion]
            if session.check_room(leaf, workload, pending.need_of(chosen), "later") is not None:
                return
            yield chosen
            live += portion
            uids = {pod.uid for pod in portion}
            waiting = [pod for pod in waiting if pod.uid not in uids]

    def _most_without(self, pending: Pending, units: Sequence[Unit]) -> list[PodView]:
        """The largest portion that fits when all units have left, or nothing; they have not."""
        portions = list(self._portions(pending))
        mark = self.session.sim.checkpoint()
        for unit in units:
            unit.leave(self.session)
        low, high = 0, len(portions)
        # Portions up to `low` fit, those beyond `high` don't.
        while low < high:
            middle = (low + high + 1) // 2
            if self._nodes_of(pending, portions[middle - 1]) is not None:
                low = middle
            else:
                high = middle - 1
        self.session.sim.rollback(mark)
        return portions[low - 1] if low else []

    def _least_prefix(
        self, pending: Pending, chunk: Sequence[PodView], units: Iterable[Unit]
    ) -> list[Unit]:
        """The fewest from the front after which the chunk fits, who have left then; or nobody."""
        sim, gone, marks = self.session.sim, list[Unit](), list[int]()
        low, high = 0, 0
        for unit in units:
            marks.append(sim.checkpoint())
            gone.append(unit)
            unit.leave(self.session)
            # Looked at after 1, 2, 4, 8, ... have left.
            if len(gone) & (len(gone) - 1) == 0:
                if self._nodes_of(pending, chunk) is not None:
                    high = len(gone)
                    break
                low = len(gone)
        else:
            high = len(gone)
            if low == high or self._nodes_of(pending, chunk) is None:
                return []
        # The chunk fits without the first `high`, and does not without the first `low`.
        while high - low > 1:
            middle = (low + high) // 2
            self._leave_up_to(middle, gone, marks)
            if self._nodes_of(pending, chunk) is not None:
                high = middle
            else:
                low = middle
        self._leave_up_to(high, gone, marks)
        return gone[:high]

    def _leave_up_to(self, count: int, units: Sequence[Unit], marks: list[int]) -> None:
        """Let exactly the first `count` have left; `marks` are those from before each left."""
        if count < len(marks):
            self.session.sim.rollback(marks[count])
            del marks[count:]
        for unit in units[len(marks) : count]:
            marks.append(self.session.sim.checkpoint())
            unit.leave(self.session)

    def _spare(
        self, pending: Pending, chunk: Sequence[PodView], units: Sequence[Unit]
    ) -> list[Unit]:
        """Let stay what the chunk does not need, what was to go last first; returns the rest."""
        nodes = self._nodes_of(pending, chunk) or set()
        going = {id(unit): unit for unit in units}
        for is_near in (False, True):
            # What stands on none of the chunk's nodes is in nobody's way.
            for unit in reversed(list(going.values())):
                if any(pod.node in nodes for pod in unit.pods) is not is_near:
                    continue
                if len(going) == 1 or not may_stay(unit, going.values(), self.gone):
                    continue
                unit.stay(self.session)
                is_in_the_way = is_near and self._nodes_of(pending, chunk) is None
                if is_in_the_way or not unit.is_apart(self.session):
                    unit.leave(self.session)
                else:
                    del going[id(unit)]
        return self._spare_parts(pending, chunk, list(going.values()))

    def _spare_parts(
        self, pending: Pending, chunk: Sequence[PodView], units: list[Unit]
    ) -> list[Unit]:
        """Of what goes whole let stay as few as can run together, if that is not in the way."""
        for key in dict.fromkeys(unit.workload.key for unit in units):
            own = [unit for unit in units if unit.workload.key == key]
            for part, rest in parts_of(self.session, self.pool, own, self.gone):
                part.stay(self.session)
                if self._nodes_of(pending, chunk) is not None and part.is_apart(self.session):
                    self.split.add(key)
                    units = [*(unit for unit in units if unit.workload.key != key), *rest]
                    break
                part.leave(self.session)
        return units

    def _nodes_of(self, pending: Pending, chunk: Sequence[PodView]) -> set[str] | None:
        """Where the chunk would be placed now; None where it does not fit, or where others lack
        company then who were given places before. Holds nothing."""
        session = self.session
        session.places.forget_failures(self.pool)
        mark = session.sim.checkpoint()
        placed = session.places.place_chunk(pending, self.pool, "later", chunk)
        if placed is None:
            return None
        is_anybody_alone = session.places.beside.leaves_alone(self._lonely)
        session.sim.rollback(mark)
        return None if is_anybody_alone else {placement.node for placement in placed}


def _useful(units: Iterable[Unit], usable: Collection[str]) -> Iterator[Unit]:
    """Those that leave usable nodes, and those of the same workloads that go before them: what goes
    last of a workload takes for granted that its surplus went."""
    for _, group in groupby(units, key=lambda unit: unit.workload.key):
        own = list(group)
        n_useful = max(
            (at for at, unit in enumerate(own, 1) if any(pod.node in usable for pod in unit.pods)),
            default=0,
        )
        yield from own[:n_useful]


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
