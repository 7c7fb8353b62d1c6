"""Whether a decision depends on an order that has no meaning."""

from collections.abc import Iterator

from extender.policy.decide import decide
from extender.scenario.outcome import Outcome, read_plan
from extender.scenario.snapshot import settings_now, take_snapshot
from extender.scenario.world import World


def order_differences(world: World, outcome: Outcome) -> Iterator[str]:
    """Decide once more with every list the other way round; at most one sentence."""
    plan = decide(take_snapshot(world, is_reversed=True), settings_now(world))
    other = read_plan(world, plan, outcome.cycle)
    for id_, place in outcome.after.items():
        if other.after[id_] != place:
            was, now = (f"{p.status} {p.node}".strip() for p in (place, other.after[id_]))
            yield f"{id_}: {was}, but {now} when the same lists are read backwards"
            return
    if outcome.fair_shares != other.fair_shares:
        yield "fair shares are others when the same lists are read backwards"
    elif outcome.plan.waits != plan.waits:
        yield "the reasons of waiting jobs are others when the same lists are read backwards"
