"""The Python twin of `choice.pyx`: a choice is a list of units, and nothing is ever undone."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tests.twins.appraisal_twin import ALONE, CORE, Appraisal, Price, Unit, price_of
from tests.twins.vacancy_twin import Left, Vacancy

if TYPE_CHECKING:
    from extender.kernels.appraisal import Herd, Terms
    from extender.kernels.nodes import Need, Nodes

#: The pod that a card is freed for, rather than the rest of the node.
HOST = -1


@dataclass(slots=True)
class Choice:
    """As `choice.Choice`."""

    nodes: "Nodes"
    herd: "Herd"
    terms: "Terms"
    demand: "Need"
    extra_need: "array[int]"
    extra_free: "array[int]"
    extra_held: "array[int]"
    node: Vacancy = field(init=False)
    appraisal: Appraisal = field(init=False)

    def __post_init__(self) -> None:
        extra = self.extra_need, self.extra_free, self.extra_held
        self.node = Vacancy(self.nodes, self.herd, self.demand, *extra)
        self.appraisal = Appraisal(self.herd, self.terms)

    def needed(self, ix: int, pods: "array[int]") -> tuple[list[int], Price] | None:
        """As `Choice.needed`."""
        units: list[Unit] = []
        for p in pods:
            unit = self.unit(ix, p, units)
            if unit is not None:
                units.append(unit)
        if not self.fits(ix, units):
            return None
        units = self.trimmed(ix, units)
        return pods_of(units), price_of(units)

    def unit(self, ix: int, p: int, before: Sequence[Unit]) -> Unit | None:
        """All that leaves of the node when p does after those before; None where it may not."""
        gone = pods_of(before)
        unit = None if p in gone else self.appraisal.unit(p, before)
        if unit is None or unit.kind != CORE:
            return unit
        owner, is_here = self.herd.owner, self.herd.is_here
        rest = [
            other
            for other in self.node.pods_on(ix)
            if owner[other] == owner[p] and is_here[other] and other not in gone and other != p
        ]
        return replace(unit, pods=(p, *rest))

    def left(self, ix: int, units: Sequence[Unit]) -> Left:
        """What the node has with these gone."""
        return self.node.left(ix, pods_of(units))

    def fits(self, ix: int, units: Sequence[Unit]) -> bool:
        """Whether one more fits then."""
        return self.node.takes(ix, self.left(ix, units))

    def frees(self, ix: int, card: int, units: Sequence[Unit]) -> bool:
        """Whether the card is free enough then."""
        return self.left(ix, units).cards[card] >= self.node.need(ix)

    def cheapest(
        self, ix: int, card: int, before: Sequence[Unit], *, is_by_size: bool
    ) -> Unit | None:
        """The unit to go next for a card, or for what else the node lacks."""
        short = self.node.lacks(self.left(ix, before))
        options = []
        for p in self.node.pods_on(ix):
            unit = self.unit(ix, p, before)
            helps = self.node.held(p, card) > 0 if card != HOST else self.node.helps(p, short)
            if unit is not None and helps:
                size = self.herd.amounts[3 * p] if is_by_size else 0
                options.append((-size, price_of([unit], n_pods=1), unit))
        return min(options, key=lambda option: option[:2])[2] if options else None

    def trimmed(
        self, ix: int, units: list[Unit], kept: Sequence[Unit] = (), card: int = HOST
    ) -> list[Unit]:
        """Those of the units that can't stay, the dearest asked first, and those that are kept;
        asked for one card, or for all that the node lacks."""
        needed = list(kept)
        while True:
            cores = {unit.workload for unit in units if unit.kind == CORE}
            untested = [
                unit
                for unit in units
                if unit not in needed and not (unit.kind == ALONE and unit.workload in cores)
            ]
            if not untested:
                return units
            dearest = max(untested, key=lambda unit: price_of([unit], n_pods=1))
            rest = [unit for unit in units if unit is not dearest]
            if self.fits(ix, rest) if card == HOST else self.frees(ix, card, rest):
                units = rest
            else:
                needed.append(dearest)


def pods_of(units: Sequence[Unit]) -> list[int]:
    """The units that leave, in order."""
    return [p for unit in units for p in unit.pods]
