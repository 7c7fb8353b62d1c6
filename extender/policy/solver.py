"""The search for victims: one chunk, one rule, and a plan simulated whole before anybody leaves.

Pod after pod the chunk takes what is free later, or else the node on which room costs least. Who
must leave there moves, where the rule lets it and there is another place, or stops. Only a plan
that holds together becomes part of the cycle's, else the simulation is rolled back.

A "no" is found before the search where sums, or the nodes one by one, show it, and is remembered by
rule and shape until something is released that was not used.
"""

from array import array
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

from extender.api.demand import Demand
from extender.api.reasons import Reason
from extender.kernels import victims as kernel
from extender.kernels.nodes_bulk import count_room
from extender.policy.chunks import Pending
from extender.policy.groups import has_topology
from extender.policy.herd import Herd, find_herd
from extender.policy.match import WHOLE_POOL, Frame
from extender.policy.offers import Offers
from extender.policy.plan import Eviction, Move, Placement
from extender.policy.queues import RESOURCES, Queue
from extender.policy.search import Search
from extender.policy.session import Session, State
from extender.policy.shapes import Shape, shapes_of
from extender.policy.terms import Rule, Terms
from extender.policy.trial import Trial, is_over
from extender.state.model import Amounts, Constraints, PodView

_Key = tuple[object, ...]


class Solver:
    """The search in one node pool; all stages of a cycle share it."""

    def __init__(self, session: Session, pool: str) -> None:
        self.session = session
        self.pool = pool
        self.herd: Herd = find_herd(session, pool)
        self.touched: list[int] = []
        self._terms: dict[Hashable, Terms] = {}
        self._offers: dict[_Key, Offers] = {}
        self._failed: list[tuple[Hashable, Shape]] = []
        self._full: list[Shape] = []
        self._epoch = 0
        self._is_open = False

    def begin(self) -> None:
        """A stage begins: queues and places may have changed since the last."""
        self.herd.sync(self.herd.queues)
        self._forget()

    def solve(self, pending: Pending, chunk: Sequence[PodView], rule: Rule) -> Trial | None:
        """A plan that the simulation holds, or None and nothing held."""
        self._watch_reservation()
        shapes = shapes_of(chunk)
        if self._has_failed(rule, shapes):
            return None
        search = Search(self, pending, chunk, rule)
        trial = search.run() if self._could(search, shapes) else None
        if trial is None and not search.was_forbidden and self._are_alike(pending, chunk):
            self._failed.append((rule.key, shapes[0]))
        return trial

    def commit(self, leaf: Queue, pending: Pending, trial: Trial, rule: Rule) -> Pending | None:
        """Put the plan into the cycle's; returns what still waits of the workload."""
        session, herd, key = self.session, self.herd, pending.workload.key
        for unit in trial.units.values():
            giver, note = herd.workloads[unit.w].key, rule.note(herd.leaves[unit.w])
            for p in unit.pods:
                session.evict(Eviction(herd.pods[p], giver, rule.reason, key, note))
        for p, placement in trial.moving.items():
            assert placement is not None
            w = herd.owner[p]
            note = f"moved so that {key} has a place"
            session.move(Move(placement, herd.workloads[w].key, Reason.MOVED, key, note))
            herd.bar(w)
        if key in herd.by_key:
            herd.bar(herd.by_key[key])
        state: State = "nominated" if self._has_to_wait(trial) else "reserved"
        placements = self._in_order(pending, trial)
        rest = session.admit(pending, placements, self.pool, state)
        herd.sync(leaf.chain)
        if _has_left_over(trial):
            self._forget()
            session.places.forget_failures(self.pool)
        return rest

    def _in_order(self, pending: Pending, trial: Trial) -> list[Placement]:
        """The taker's places; of pods that are all alike the first has the first node."""
        placed = trial.placements
        pods = [placement.pod for placement in placed]
        if not self._are_alike(pending, pods) or len({pod.group for pod in pods}) > 1:
            return placed
        placed.sort(key=lambda place: (place.node, [card.index for card in place.cards]))
        in_line = {pod.uid: at for at, pod in enumerate(pending.waiting)}
        pods.sort(key=lambda pod: in_line[pod.uid])
        return [Placement(pod, p.node, p.cards) for pod, p in zip(pods, placed, strict=True)]

    def _are_alike(self, pending: Pending, pods: Sequence[PodView]) -> bool:
        """Whether one of the pods is as good as another, wherever it is."""
        if self.session.places.beside.concerns(pods) or has_topology(pending.workload):
            return False
        return len(shapes_of(pods)) == 1

    def terms(self, rule: Rule, moves: bytearray) -> Terms:
        """The rule's terms with these shapes moved; the same object for the same arguments."""
        key = rule.key
        if key not in self._terms:
            self._terms[key] = rule.terms(self.herd)
        base = self._terms[key]
        moving = key, bytes(moves)
        if moving not in self._terms:
            self._terms[moving] = replace(base, moves=moves)
        return self._terms[moving]

    def offers(self, rule: Rule, terms: Terms, pod: PodView | Shape, frame: Frame) -> Offers:
        """Prices of room for such a pod, brought up to date."""
        key = (
            rule.key,
            bytes(terms.moves),
            pod.demand,
            id(pod.constraints),
            id(frame),
            self._is_open,
        )
        offers = self._offers.get(key)
        if offers is None:
            candidates = self.session.places.matcher.candidates(self.pool, pod.constraints, frame)
            table = self.session.sim.later
            offers = self._offers[key] = Offers(table, self.herd, terms, pod.demand, candidates)
        offers.refresh(self.touched, self._epoch)
        return offers

    def is_full(self, demand: Demand, constraints: Constraints) -> bool:
        """Whether no node of the pool has a place later for a pod that asks for this."""
        shape = Shape(demand, constraints, 1)
        if any(shape.is_no_easier_than(known) for known in self._full):
            return True
        candidates = self.session.places.matcher.candidates(self.pool, constraints)
        if self.session.places.beside or self._has_place(shape, candidates):
            return False
        self._full.append(shape)
        return True

    def recheck(self, nodes: Iterable[int]) -> None:
        """Something left these nodes: what had no place may have one."""
        only = array("i", sorted(set(nodes)))
        self._full = [shape for shape in self._full if not self._has_place(shape, only)]

    def _has_place(self, shape: Shape, nodes: "array[int]") -> bool:
        later = self.session.sim.later
        counts = array("i", bytes(4 * len(nodes)))
        count_room(later, shape.demand, nodes, 1, counts)
        return any(
            n and (not shape.demand.counted or later.fits_counted(ix, shape.demand))
            for ix, n in zip(nodes, counts, strict=True)
        )

    def changed_prices(self) -> None:
        """A plan was rolled back in which prices were worked out that hold no more."""
        self._epoch += 1
        self._full.clear()

    def _forget(self) -> None:
        self._failed.clear()
        self._full.clear()
        self._epoch += 1

    def _watch_reservation(self) -> None:
        """What is kept for somebody may count as free for the next workload, or not any more."""
        is_open = self.session.places.is_open(self.pool)
        if is_open or self._is_open:
            self._forget()
        self._is_open = is_open

    def _has_failed(self, rule: Rule, shapes: Sequence[Shape]) -> bool:
        """Whether the same takers found nothing for something easier."""
        return any(
            known == rule.key and shape.is_no_easier_than(failed)
            for known, failed in self._failed
            for shape in shapes
        )

    def _could(self, search: "Search", shapes: Sequence[Shape]) -> bool:
        """The cheap no: whether there is enough in sum, and on the nodes one by one."""
        need = search.pending.need_of(search.chunk)
        most = self._most_freed(self.terms(search.rule, bytearray(len(self.herd.shapes))))
        idle = array("q", bytes(24))
        usable = self._usable(shapes)
        kernel.sum_idle(self.session.sim.later, usable, idle)
        if any(need[r] > idle[r] + most[r] for r in RESOURCES):
            return False
        if len(shapes) > 1 or shapes[0].count == 1:
            return True
        offers = self.offers(search.rule, search.everything, search.chunk[0], WHOLE_POOL)
        return offers.capacity(shapes[0].count) >= shapes[0].count

    def _usable(self, shapes: Sequence[Shape]) -> "array[int]":
        """All nodes that any of the shapes may use."""
        matcher = self.session.places.matcher
        listed = [matcher.candidates(self.pool, shape.constraints) for shape in shapes]
        return listed[0] if len(listed) == 1 else array("i", sorted(set().union(*listed)))

    def _most_freed(self, terms: Terms) -> Amounts:
        """No more than this can be stopped on these terms, however it is done."""
        herd = self.herd
        if not any(terms.tiers):
            return 0, 0, 0
        total, largest = array("q", bytes(8 * len(herd.has))), array("q", bytes(8 * len(herd.has)))
        kernel.sum_units(herd, total, largest)
        return terms.most_freed(herd, total, largest)

    def _has_to_wait(self, trial: Trial) -> bool:
        """Whether any place is still held by somebody who leaves."""
        if any(True for _ in trial.leaving()):
            return True
        now = self.session.sim.now
        return any(is_over(now, now.cards.ix[place.node]) for place in trial.placements)


def solver_of(session: Session, pool: str) -> Solver:
    """The pool's solver, ready for a stage that begins."""
    if pool not in session.solvers:
        session.solvers[pool] = Solver(session, pool)
    solver = session.solvers[pool]
    solver.begin()
    return solver


def _has_left_over(trial: Trial) -> bool:
    """Whether more was freed on some node than is used there: others may need fewer victims."""
    balance: dict[str, list[int]] = {}
    herd = trial.herd
    for p in trial.leaving():
        _add(balance, herd.pods[p].node, herd.amounts_of((p,)), 1)
    moved = [placement for placement in trial.moving.values() if placement is not None]
    for placement in (*trial.placements, *moved):
        if placement.node in balance:
            _add(balance, placement.node, placement.amounts, -1)
    return any(max(left) > 0 for left in balance.values())


def _add(balance: dict[str, list[int]], node: str, amounts: Amounts, sign: int) -> None:
    left = balance.setdefault(node, [0, 0, 0, 0])
    for at, amount in enumerate((*amounts, 1)):
        left[at] += sign * amount
