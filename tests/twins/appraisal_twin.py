"""The Python twin of `appraisal.pyx`: what a pod costs, from the list of all that went before."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from extender.kernels.appraisal import Herd, Terms

#: Kinds of units, as `costs.pxd` has them.
ALONE: Final = 0
MOVE: Final = 1
CORE: Final = 2

Price = tuple[int, int, int]
_RESOURCES: Final = range(3)


@dataclass(slots=True, frozen=True)
class Unit:
    """Pods that leave together, the first of which was asked for, what that costs, and what the
    queue gives by resource."""

    kind: int
    workload: int
    pods: tuple[int, ...]
    tier: int
    is_below: bool
    lost: int
    moved: int
    rank: int
    age: int
    turn: int
    amounts: tuple[int, ...] = (0, 0, 0)


def price_of(units: Sequence[Unit], n_pods: int | None = None) -> Price:
    """What the units cost together, packed as `costs.pxd` says; `n_pods` counts instead of all."""

    def most(figures: list[int], limit: int) -> int:
        return min(max([0, *figures]), limit)

    count = sum(len(unit.pods) for unit in units) if n_pods is None else n_pods
    stops = [unit for unit in units if unit.kind != MOVE]
    moves = [unit for unit in units if unit.kind == MOVE]
    high = most([unit.tier for unit in units], 3)
    high = high << 7 | most([unit.rank for unit in stops], 2**7 - 1)
    high = high << 1 | any(unit.is_below for unit in units)
    high = high << 1 | any(unit.kind == CORE for unit in units)
    high = high << 52 | min(sum(unit.lost for unit in units), 2**52 - 1)
    moved = most([unit.rank for unit in moves], 2**7 - 1)
    moved = moved << 52 | min(sum(unit.moved for unit in units), 2**52 - 1)
    low = min(count, 2**8 - 1)
    low = low << 33 | most([unit.age for unit in units], 2**33 - 1)
    low = low << 7 | most([unit.turn for unit in units], 2**7 - 1)
    return high, moved, low


@dataclass(slots=True)
class Appraisal:
    """As `appraisal.Appraisal`."""

    herd: "Herd"
    terms: "Terms"

    def price(self, p: int, chosen: "array[int]") -> tuple[int, int, int, int] | None:
        """As `Appraisal.price`."""
        units: list[Unit] = []
        for each in chosen:
            unit = self.unit(each, units)
            assert unit is not None
            units.append(unit)
        unit = self.unit(p, units)
        return None if unit is None else (unit.kind, *price_of([unit]))

    def unit(self, p: int, before: Sequence[Unit]) -> Unit | None:
        """The pod as a unit that leaves after those before, or None where it may not."""
        herd, terms, w = self.herd, self.terms, self.herd.owner[p]
        safe = terms.is_safe[p]
        if not herd.is_here[p] or herd.priority[w] >= terms.below_priority or safe == 2:
            return None
        own = [unit for unit in before if unit.workload == w]
        stopped = [each for unit in own if unit.kind != MOVE for each in unit.pods]
        is_core = bool(herd.is_core[p]) or len(stopped) >= herd.surplus[w]
        if is_core and safe:
            return None
        tier, is_below, lost, moved = 0, False, 0, 0
        amounts: tuple[int, ...] = (0, 0, 0)
        if herd.may_move[p] and terms.moves[herd.shape[p]] and terms.is_mobile[herd.queue[w]]:
            kind = MOVE
            if not is_core:
                moved = herd.lost[p]
            elif all(unit.kind != MOVE for unit in own):
                moved = herd.whole_lost[w]
        else:
            if is_core and herd.is_stuck[w]:
                return None
            kind = CORE if is_core else ALONE
            if is_core:
                lost = herd.whole_lost[w] - sum(herd.lost[each] for each in stopped)
            else:
                lost = herd.lost[p]
            amounts = self._amounts(kind, p, own)
            found = self._tier(herd.queue[w], amounts, before)
            if found is None:
                return None
            tier, is_below = found
        return Unit(
            kind,
            w,
            (p,),
            tier,
            is_below,
            lost,
            moved,
            herd.rank[w],
            herd.age[w],
            herd.turn[p],
            amounts,
        )

    def _amounts(self, kind: int, p: int, own: Sequence[Unit]) -> tuple[int, ...]:
        """What the queue gives with it, by resource, after those of its workload."""
        if kind != CORE:
            return tuple(self.herd.amounts[3 * p : 3 * p + 3])
        w = self.herd.owner[p]
        surplus = [unit.amounts for unit in own if unit.kind == ALONE]
        return tuple(
            self.herd.whole_amounts[3 * w + r] - sum(each[r] for each in surplus)
            for r in _RESOURCES
        )

    def _path(self, queue: int) -> "array[int]":
        return self.terms.path[self.terms.path_start[queue] : self.terms.path_start[queue + 1]]

    def _tier(
        self, queue: int, amounts: Sequence[int], before: Sequence[Unit]
    ) -> tuple[int, bool] | None:
        """The first tier in which the queue has something to give of this, and whether it ends
        below a floor."""
        path = self._path(queue)
        for tier in range(self.terms.tiers[queue]):
            if not path:
                return tier, False
            above = {
                r: min(self._above(tier, x, r, before) for x in path)
                for r in _RESOURCES
                if amounts[r] > 0
            }
            if any(room > 0 for room in above.values()):
                return tier, all(room < amounts[r] for r, room in above.items())
        return None

    def _above(self, tier: int, queue: int, resource: int, before: Sequence[Unit]) -> int:
        """How much more than its floor a queue has after those before."""
        herd, spot = self.herd, 3 * queue + resource
        given = [
            unit.amounts[resource]
            for unit in before
            if unit.kind != MOVE and queue in self._path(herd.queue[unit.workload])
        ]
        return herd.has[spot] - sum(given) - self.terms.floors[tier * len(herd.has) + spot]
