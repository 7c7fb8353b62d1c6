"""All rules of the judge on one cycle."""

from collections.abc import Iterator

from extender.scenario.outcome import Outcome
from extender.scenario.world import World
from tests.scenarios.judge.invariants import untold_waits, violations
from tests.scenarios.judge.minimality import broken_promises, n_checks, wasted_victims
from tests.scenarios.judge.order_independence import order_differences

#: Tasks up to which a cycle is decided again in another order.
_MOST_PERMUTED = 2000
#: Tasks times victims up to which each victim is left out once.
_MOST_CHECKS = 50_000


def broken_rules(world: World, outcome: Outcome, last: Outcome | None) -> Iterator[str]:
    """One sentence for each rule that the cycle breaks, needless victims included.

    `last` is the cycle before it, if nothing changed between the two; else None.
    """
    yield from firm_rules_broken(world, outcome, last)
    yield from needless_victims(world, outcome)


def firm_rules_broken(world: World, outcome: Outcome, last: Outcome | None) -> Iterator[str]:
    """The same for the rules that every cycle keeps.

    Rules that need a second decision are skipped in large cases.
    """
    yield from violations(world, outcome)
    yield from untold_waits(world, outcome)
    if last is not None:
        yield from broken_promises(world, last, outcome)
    if len(world.tasks) <= _MOST_PERMUTED:
        yield from order_differences(world, outcome)


def needless_victims(world: World, outcome: Outcome) -> Iterator[str]:
    """One sentence for each victim that could stay: rare, and counted over many clusters.

    The policy gives victims back one by one. A plan in which victims could stay only if a whole
    gang were placed again is not searched for.
    """
    if n_checks(world, outcome) <= _MOST_CHECKS:
        yield from wasted_victims(world, outcome)
