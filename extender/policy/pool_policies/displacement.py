"""The least that must leave so that as much of a workload fits as can, in policy `priority`."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from extender.policy.pool_policies.eviction_units import Unit, may_stay, parts_of
from extender.policy.session import Session
from extender.policy.workloads.gangs import next_chunk
from extender.policy.workloads.pending import Pending
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
        # What stands on none of the chunk's nodes is in nobody's way; the surplus of work may stay
        # only once its core does, which may be near.
        for is_near in (False, True, False):
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
