"""The Python twin of `exchange.pyx`: units are lists, tried one after the other."""

from collections.abc import Sequence

from tests.twins.appraisal_twin import CORE, Unit, price_of
from tests.twins.choice_twin import Choice


def improve(choice: Choice, ix: int, found: list[Unit] | None) -> list[Unit] | None:
    """As `Exchange.improve`."""
    best = found
    for p in choice.node.pods_on(ix):
        unit = choice.unit(ix, p, [])
        if unit is None or (best is not None and not _could_help(choice, unit, best)):
            continue
        units = [unit]
        for other in best or ():
            again = choice.unit(ix, other.pods[0], units)
            if again is not None:
                units.append(again)
        if not choice.fits(ix, units):
            continue
        units = choice.trimmed(ix, units, [unit])
        if best is None or price_of(units) < price_of(best):
            best = units
    return best


def _could_help(choice: Choice, unit: Unit, best: Sequence[Unit]) -> bool:
    if price_of([unit], n_pods=1) >= price_of(best):
        return False
    if any(unit.pods[0] in other.pods for other in best):
        return False
    amounts = choice.herd.amounts

    def is_bigger(p: int, other: int) -> bool:
        return any(amounts[3 * p + r] > amounts[3 * other + r] for r in range(3))

    return unit.kind == CORE or any(
        other.kind == CORE
        or price_of([unit], n_pods=1) < price_of([other], n_pods=1)
        or any(is_bigger(unit.pods[0], p) for p in other.pods)
        for other in best
    )
