"""The Python twin of `node_victims.pyx`, with lists for sets of victims and without undo."""

from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tests.twins.nodes_twin import WHOLE

if TYPE_CHECKING:
    from extender.kernels.node_victims import Eligibility, Pods
    from extender.kernels.nodes import Need, Nodes

IMPOSSIBLE: Final = 2**63 - 1
SINGLE: Final = 0
MOVE: Final = 1
WHOLE_WORKLOAD: Final = 2
#: Stands for all resources of a node besides its cards.
HOST: Final = -1

Cost = tuple[int, int, int]


@dataclass(slots=True, frozen=True)
class Left:
    """Free resources of a node: milli by card, milli-CPU, MiB, pod slots, counted resources."""

    cards: list[int]
    cpu: int
    memory: int
    slots: int
    counted: list[int]


@dataclass(slots=True, frozen=True)
class Unit:
    """Pods of one workload that are evicted together, the cost, and what their queue releases."""

    kind: int
    w: int
    pods: tuple[int, ...]
    lost: int
    moved: int
    amounts: tuple[int, ...]
    tier: int
    is_below: bool
    rank: int
    age: int
    turn: int


def cost_of(units: Sequence[Unit], n_pods: int | None = None, n_cards: int = 1) -> Cost:
    """The cost of evicting the units together, packed as in `costs.pxd`; lost work is divided by
    the number of freed cards. `n_pods` replaces their number of pods."""

    def scaled(lost: int) -> int:
        return min(lost // n_cards, 2**52 - 1)

    def most(figures: list[int], limit: int) -> int:
        return min(max([0, *figures]), limit)

    stops = [unit for unit in units if unit.kind != MOVE]
    moves = [unit for unit in units if unit.kind == MOVE]
    high = most([unit.tier for unit in units], 3)
    high = high << 7 | most([unit.rank for unit in stops], 2**7 - 1)
    high = high << 1 | any(unit.is_below for unit in units)
    high = high << 1 | any(unit.kind == WHOLE_WORKLOAD for unit in units)
    high = high << 52 | scaled(sum(unit.lost for unit in units))
    moved = most([unit.rank for unit in moves], 2**7 - 1)
    moved = moved << 52 | scaled(sum(unit.moved for unit in units))
    low = min(len(pods_of(units)) if n_pods is None else n_pods, 2**8 - 1)
    low = low << 33 | most([unit.age for unit in units], 2**33 - 1)
    return high, moved, low << 7 | most([unit.turn for unit in units], 2**7 - 1)


def pods_of(units: Sequence[Unit]) -> list[int]:
    """The evicted pods, in order."""
    return [p for unit in units for p in unit.pods]


class NodeVictims:
    """As `node_victims.NodeVictims`."""

    def __init__(  # noqa: PLR0917
        self,
        nodes: "Nodes",
        node_ixs: "array[int]",
        pods: "Pods",
        eligibility: "Eligibility",
        demand: "Need",
        counted_need: "array[int]",
        counted_free: "array[int]",
        counted_held: "array[int]",
    ) -> None:
        self.nodes, self.node_ixs, self.pods, self.eligibility = nodes, node_ixs, pods, eligibility
        self.demand, self.counted_need = demand, counted_need
        self.counted_free, self.counted_held = counted_free, counted_held
        self._costs: list[Cost] = [(0, 0, 0)] * len(node_ixs)

    def update(self, nodes: "array[int]") -> None:
        """As `NodeVictims.update`."""
        for at, ix in enumerate(self.node_ixs):
            if ix in nodes:
                units = self.victims_on(ix)
                self._costs[at] = (IMPOSSIBLE, 0, 0) if units is None else cost_of(units)

    def choose(self, ix: int, out: "array[int]") -> int:
        """As `NodeVictims.choose`."""
        units = self.victims_on(ix)
        self.update(array("i", [ix]))
        chosen = pods_of(units or [])
        out[: len(chosen)] = array("i", chosen)
        return -1 if units is None else len(chosen)

    def cost(self, at: int) -> Cost:
        """As `NodeVictims.cost`."""
        return self._costs[at]

    def exclude(self, at: int) -> None:
        """As `NodeVictims.exclude`."""
        self._costs[at] = IMPOSSIBLE, 0, 0

    def cheapest(self) -> int:
        """As `NodeVictims.cheapest`."""
        possible = [(p, at) for at, p in enumerate(self._costs) if p[0] != IMPOSSIBLE]
        return min(possible)[1] if possible else -1

    def capacity(self, most: int) -> int:
        """As `NodeVictims.capacity`."""
        total = 0
        for ix in self.node_ixs:
            left, count = self._left(ix, self._removable(ix)), 0
            while count < most and self._takes(ix, left, count + 1):
                count += 1
            total += count
        return min(most, total)

    def victims_on(self, ix: int) -> list[Unit] | None:
        """The units to evict from node `ix`, none if the pod fits; None if no eviction helps."""
        if not self._takes(ix, self._left(ix, self._removable(ix))):
            return None
        units = self._cleared(ix, is_by_size=False)
        if units is not None and not (len(pods_of(units)) > 1 or any(u.is_below for u in units)):
            return units
        by_size = self._cleared(ix, is_by_size=True)
        return min(
            (each for each in (units, by_size) if each is not None), key=cost_of, default=None
        )

    def _cleared(self, ix: int, *, is_by_size: bool) -> list[Unit] | None:
        """Units whose eviction makes the pod fit, all needed: the cheapest first, or the
        largest."""
        units: list[Unit] | None = []
        while units is not None and not self._has_cards(ix, self._left(ix, pods_of(units))):
            units = self._with_cheapest_card(ix, units, is_by_size=is_by_size)
        while units is not None and self._lacks(self._left(ix, pods_of(units))):
            units = self._with_cheapest(ix, HOST, units, is_by_size=is_by_size)
        return None if units is None else self._needed(ix, units, [], HOST)

    def _with_cheapest_card(
        self, ix: int, before: list[Unit], *, is_by_size: bool
    ) -> list[Unit] | None:
        """`before` and the units that free one more card at the least cost per freed card."""
        options = []
        for card in range(self.nodes.cards.n_cards[ix]):
            units: list[Unit] | None = before
            while units is not None and not self._is_free(ix, card, units):
                units = self._with_cheapest(ix, card, units, is_by_size=is_by_size)
            if units is None or units is before:
                continue
            more = self._needed(ix, units, before, card)[len(before) :]
            n_cards = self._n_free(ix, [*before, *more]) - self._n_free(ix, before)
            cost = cost_of(more, n_cards=max(1, n_cards))
            options.append((-n_cards * is_by_size, cost, card, [*before, *more]))
        return min(options, key=lambda option: option[:3])[3] if options else None

    def _with_cheapest(
        self, ix: int, card: int, before: list[Unit], *, is_by_size: bool
    ) -> list[Unit] | None:
        """`before` and the cheapest unit, or the largest, that holds a part of the card, or of a
        resource that the host lacks."""
        gone = pods_of(before)
        lack = self._lack(ix, card, self._left(ix, gone))
        options = []
        for p in self._pods_on(ix):
            part = 0 if p in gone else self._part(p, card, lack)
            unit = self._unit(ix, p, before) if part else None
            if unit is not None:
                size = part if card == HOST else self.pods.amounts[3 * p]
                options.append((-size * is_by_size, cost_of([unit], n_pods=1), p, unit))
        return [*before, min(options)[3]] if options else None

    def _lack(self, ix: int, card: int, left: Left) -> dict[str, int]:
        """How much of each resource the card, or the host, lacks."""
        if card != HOST:
            return {"card": self._need(ix) - left.cards[card]}
        amounts = {
            "slots": 1 - left.slots,
            "cpu": self.demand.cpu_milli - left.cpu,
            "memory": self.demand.memory_mib - left.memory,
        }
        for kind, need in enumerate(self.counted_need):
            amounts[str(kind)] = need - left.counted[kind]
        return {name: amounts[name] for name in self._lacks(left)}

    def _part(self, p: int, card: int, lack: dict[str, int]) -> int:
        """The part of the lacking amount that the pod holds, in thousandths, rounded up."""
        n, amounts = len(self.counted_need), self.pods.amounts
        held = {"slots": 1, "cpu": amounts[3 * p + 1], "memory": amounts[3 * p + 2]}
        held |= {str(kind): self.counted_held[p * n + kind] for kind in range(n)}
        held["card"] = 0 if card == HOST else self._held(p, card)
        parts = [-(-min(held[name], much) * 1000 // much) for name, much in lack.items()]
        return -(-sum(parts) // len(parts))

    def _needed(self, ix: int, units: list[Unit], before: Sequence[Unit], card: int) -> list[Unit]:
        """`before`, and those of `units` that cannot stay; the most expensive is tried first."""
        tested = list(before)
        while True:
            whole = {unit.w for unit in units if unit.kind == WHOLE_WORKLOAD}
            untested = [
                unit
                for unit in units
                if unit not in tested and not (unit.kind == SINGLE and unit.w in whole)
            ]
            if not untested:
                return self._appraised_again(ix, units, before)
            dearest = max(untested, key=lambda unit: cost_of([unit], n_pods=1))
            tested.append(dearest)
            rest = [unit for unit in units if unit is not dearest]
            is_enough = self._takes(ix, self._left(ix, pods_of(rest)))
            if is_enough if card == HOST else self._is_free(ix, card, rest):
                units = rest

    def _appraised_again(
        self, ix: int, units: Sequence[Unit], before: Sequence[Unit]
    ) -> list[Unit]:
        """`units`, of which the first are `before`; the others with their costs now that fewer pods
        are evicted. Their pods stay the same: one that was to be moved, but stays, is none of the
        pods that leave with its workload."""
        found = list(before)
        for unit in units[len(before) :]:
            again = self._unit(ix, unit.pods[0], found)
            found.append(replace(again, kind=unit.kind, pods=unit.pods) if again else unit)
        return found

    def _unit(self, ix: int, p: int, before: Sequence[Unit]) -> Unit | None:
        """The unit that is evicted with pod `p` after `before`; None if `p` may not be evicted."""
        pods, eligibility, w = self.pods, self.eligibility, self.pods.owner[p]
        if (
            not pods.is_here[p]
            or pods.priority[w] >= eligibility.below_priority
            or eligibility.is_safe[p] == 2
        ):
            return None
        own = [unit for unit in before if unit.w == w]
        evicted = [each for unit in own if unit.kind != MOVE for each in unit.pods]
        is_core = bool(pods.is_core[p]) or len(evicted) >= pods.surplus[w]
        if is_core and eligibility.is_safe[p]:
            return None
        amounts = tuple(pods.amounts[3 * p : 3 * p + 3])
        common = pods.rank[w], pods.age[w], pods.turn[p]
        if (
            pods.may_move[p]
            and eligibility.moves[pods.shape[p]]
            and eligibility.is_mobile[pods.queue[w]]
        ):
            is_first = all(unit.kind != MOVE for unit in own)
            moved = pods.lost[p] if not is_core else is_first * pods.whole_lost[w]
            return Unit(MOVE, w, (p,), 0, moved, amounts, 0, False, *common)
        unit = Unit(SINGLE, w, (p,), pods.lost[p], 0, amounts, 0, False, *common)
        if is_core:
            if pods.is_stuck[w]:
                return None
            gone, surplus = pods_of(before), [each for each in own if each.kind == SINGLE]
            others = [
                other
                for other in self._pods_on(ix)
                if pods.owner[other] == w and pods.is_here[other] and other not in (*gone, p)
            ]
            given = [sum(each.amounts[r] for each in surplus) for r in range(3)]
            unit = replace(
                unit,
                kind=WHOLE_WORKLOAD,
                pods=(p, *others),
                lost=pods.whole_lost[w] - sum(pods.lost[each] for each in evicted),
                amounts=tuple(pods.whole_amounts[3 * w + r] - given[r] for r in range(3)),
            )
        return self._with_tier(unit, before)

    def _with_tier(self, unit: Unit, before: Sequence[Unit]) -> Unit | None:
        """The unit in the first tier in which its queue exceeds its floor in a released
        resource."""
        path = self._path(unit.w)
        for tier in range(self.eligibility.tiers[self.pods.queue[unit.w]]):
            if not path:
                return replace(unit, tier=tier)
            above = {
                r: min(self._above(tier, queue, r, before) for queue in path)
                for r in range(3)
                if unit.amounts[r] > 0
            }
            if any(room > 0 for room in above.values()):
                is_below = all(room < unit.amounts[r] for r, room in above.items())
                return replace(unit, tier=tier, is_below=is_below)
        return None

    def _above(self, tier: int, queue: int, resource: int, before: Sequence[Unit]) -> int:
        """How much a queue holds above its floor after `before`."""
        has, spot = self.pods.has, 3 * queue + resource
        given = [
            unit.amounts[resource]
            for unit in before
            if unit.kind != MOVE and queue in self._path(unit.w)
        ]
        return has[spot] - sum(given) - self.eligibility.floors[tier * len(has) + spot]

    def _path(self, w: int) -> "array[int]":
        queue, start = self.pods.queue[w], self.eligibility.path_start
        return self.eligibility.path[start[queue] : start[queue + 1]]

    def _pods_on(self, ix: int) -> range:
        return range(self.pods.start[ix], self.pods.start[ix + 1])

    def _removable(self, ix: int) -> list[int]:
        """The pods of the node that may be evicted, each considered alone."""
        return [p for p in self._pods_on(ix) if self._unit(ix, p, []) is not None]

    def _left(self, ix: int, gone: Collection[int]) -> Left:
        """Free resources of the node without these pods."""
        nodes, amounts, n = self.nodes, self.pods.amounts, len(self.counted_need)
        first, held = ix * nodes.cards.stride, self.counted_held
        return Left(
            cards=[
                nodes.cards.card_free[first + card] + sum(self._held(p, card) for p in gone)
                for card in range(nodes.cards.n_cards[ix])
            ],
            cpu=nodes.free_cpu_milli[ix] + sum(amounts[3 * p + 1] for p in gone),
            memory=nodes.free_memory_mib[ix] + sum(amounts[3 * p + 2] for p in gone),
            slots=nodes.free_pods[ix] + len(gone),
            counted=[
                self.counted_free[ix * n + kind] + sum(held[p * n + kind] for p in gone)
                for kind in range(n)
            ],
        )

    def _held(self, p: int, card: int) -> int:
        """Milli of the card that the pod holds."""
        own = range(self.pods.card_start[p], self.pods.card_start[p + 1])
        return sum(self.pods.card_milli[at] for at in own if self.pods.card_ix[at] == card)

    def _need(self, ix: int) -> int:
        """Milli that the new pod needs of each card; above 1000 if the cards are too small."""
        if self.demand.gpu_memory_mib == 0:
            return self.demand.milli
        mib = self.nodes.cards.card_mib[ix]
        return min(WHOLE + 1, -(-self.demand.gpu_memory_mib * WHOLE // mib)) if mib > 0 else 1001

    def _is_free(self, ix: int, card: int, units: Sequence[Unit]) -> bool:
        return self._left(ix, pods_of(units)).cards[card] >= self._need(ix)

    def _n_free(self, ix: int, units: Sequence[Unit]) -> int:
        """Number of cards with enough free, at most as many as the new pod requests."""
        cards = self._left(ix, pods_of(units)).cards
        return min(self.demand.devices, sum(milli >= self._need(ix) for milli in cards))

    def _takes(self, ix: int, left: Left, count: int = 1) -> bool:
        """Whether `count` of the new pods fit on the node with `left` free."""
        return self._has_cards(ix, left, count) and not self._lacks(left, count)

    def _has_cards(self, ix: int, left: Left, count: int = 1) -> bool:
        """Whether the cards suffice for `count` pods; a pod uses each card at most once."""
        devices, need = self.demand.devices, self._need(ix)
        if devices == 0 or need > WHOLE:
            return devices == 0
        places = sum(min(count, milli // need) for milli in left.cards if milli > 0)
        return places >= count * devices

    def _lacks(self, left: Left, count: int = 1) -> set[str]:
        """Resources besides cards that do not suffice: slots, cpu, memory, counted resources."""
        demand = self.demand
        short = {
            "slots": left.slots < count,
            "cpu": demand.cpu_milli > 0 and left.cpu < count * demand.cpu_milli,
            "memory": demand.memory_mib > 0 and left.memory < count * demand.memory_mib,
        }
        for kind, need in enumerate(self.counted_need):
            short[str(kind)] = left.counted[kind] < count * need
        return {name for name, is_short in short.items() if is_short}
