"""The least that must leave so that as much of a workload fits as can, in policy `priority`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from extender.policy.chunks import Pending
from extender.policy.groups import has_topology, next_chunk
from extender.policy.queues import sum_amounts
from extender.policy.session import Session
from extender.policy.stops import Unit, may_stay, parts_of
from extender.state.model import PodView, WorkloadView
from extender.state.nodes import NodeTable

#: Pods that leave, and the workload for which they do.
Taken = tuple[Unit, WorkloadView]


@dataclass(slots=True)
class Displacement:
    """Searches in one pool. What a search chooses has left in the simulation; after one in vain the
    caller rolls that back. `split` has the keys of work of which a part was let stay."""

    session: Session
    pool: str
    split: set[str] = field(default_factory=set)
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
        usable = self._usable_nodes(pending)
        useful: Iterable[Unit] = (u for u in units if any(pod.node in usable for pod in u.pods))
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
                if len(going) == 1 or not may_stay(unit, going.values()):
                    continue
                unit.stay(self.session)
                if is_near and self._nodes_of(pending, chunk) is None:
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
            for part, rest in parts_of(self.session, self.pool, own):
                part.stay(self.session)
                if self._nodes_of(pending, chunk) is not None:
                    self.split.add(key)
                    units = [*(unit for unit in units if unit.workload.key != key), *rest]
                    break
                part.leave(self.session)
        return units

    def _nodes_of(self, pending: Pending, chunk: Sequence[PodView]) -> set[str] | None:
        """Where the chunk would be placed now; None where it does not fit. Holds nothing."""
        session = self.session
        session.places.forget_failures(self.pool)
        mark = session.sim.checkpoint()
        placed = session.places.place_chunk(pending, self.pool, "later", chunk)
        if placed is None:
            return None
        session.sim.rollback(mark)
        return {placement.node for placement in placed}


def spare_together(session: Session, pool: str, taken: Sequence[Taken]) -> list[Taken]:
    """Let stay who is not needed once all have been served, the last to be chosen first.

    What was freed for one workload and not used may serve another, which is placed again if need
    be. Returns who still has to leave.
    """
    going: dict[str, list[Unit]] = {}
    for unit, _ in taken:
        going.setdefault(unit.workload.key, []).append(unit)
    spared: set[int] = set()
    for unit, taker in reversed(taken):
        siblings = going[unit.workload.key]
        if may_stay(unit, siblings) and _can_spare(session, pool, unit, taker):
            siblings.remove(unit)
            spared.add(id(unit))
    left = [(unit, taker) for unit, taker in taken if id(unit) not in spared]
    last = {unit.workload.key: taker for unit, taker in left}
    # Work that goes whole goes for the one who took the last of it: no part could stay alone.
    return [
        (unit, last[unit.workload.key] if _goes_whole(unit, going) else taker)
        for unit, taker in left
    ]


def _goes_whole(unit: Unit, going: Mapping[str, Sequence[Unit]]) -> bool:
    """Whether nothing of the unit's workload stays."""
    n_going = sum(len(each.pods) for each in going[unit.workload.key])
    return n_going == sum(bool(p.node) and not p.is_terminating for p in unit.workload.pods)


def _can_spare(session: Session, pool: str, unit: Unit, taker: WorkloadView) -> bool:
    """Whether the taker has places without it; if so they are its places, and the unit stays."""
    if has_topology(taker):
        return False
    later = session.sim.later
    nodes = {pod.node for pod in unit.pods}
    given = session.awaited_now(taker.key)
    moved = [placement for placement in given if placement.node in nodes]
    mark = session.sim.checkpoint()
    for placement in moved:
        session.sim.unhold(later.cards.ix[placement.node], placement.pod, placement.cards)
    unit.stay(session)
    session.places.forget_failures(pool)
    again = None
    if not any(_is_overfull(later, later.cards.ix[node]) for node in nodes):
        again = session.places.place_in([p.pod for p in moved], pool, "later") if moved else []
    if again is None or sum_amounts(p.amounts for p in again) != sum_amounts(
        p.amounts for p in moved
    ):
        session.sim.rollback(mark)
        return False
    session.replace(taker.key, moved, again)
    return True


def _is_overfull(table: NodeTable, ix: int) -> bool:
    """Whether the node or one of its cards holds more than it has."""
    host = table.free_cpu_milli[ix], table.free_memory_mib[ix], table.free_pods[ix]
    counted = (table.free_counted[ix] or {}).values()
    return any(left < 0 for left in (*table.cards.free_of(ix), *host, *counted))
