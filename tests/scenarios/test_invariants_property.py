"""Random clusters run until nothing changes: every rule holds in every cycle, and they do rest.

$BALLAST_CYCLES says how many cycles are decided in all. Where it says nothing, 2,000 on the same
clusters every time; else on new ones.
"""

import os
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from extender.scenario.load import case_of
from extender.scenario.outcome import Outcome
from extender.scenario.run import broken_rules, run_cycle
from extender.scenario.world import World
from tests.scenarios.clusters import Entry, entries

CYCLES = int(os.environ.get("BALLAST_CYCLES", "2000"))
IS_REPEATED = "BALLAST_CYCLES" not in os.environ
#: Victims are the least for each taker. Over all takers of a cycle one may rarely be left over whom
#: only another order of them would have spared, and a place may be promised that is then not used.
MOST_NEEDLESS_PERCENT = 2
#: Seconds: three per hundred cycles are plenty, and Hypothesis may take five minutes to shrink.
LIMIT_S = 420 + CYCLES * 3 // 100


@pytest.mark.timeout(LIMIT_S)
def test_rules_hold_in_every_cycle_and_the_same_cluster_comes_to_rest() -> None:
    explore(entries(), CYCLES)


@pytest.mark.timeout(LIMIT_S)
def test_they_hold_under_the_other_policies_too() -> None:
    explore(entries(("demand-weighted", "priority")), CYCLES // 4)


def explore(clusters: st.SearchStrategy[Entry], n_cycles: int) -> None:
    """Run clusters until so many cycles were decided; a cluster takes one at least."""
    n_done, n_clusters, n_needless = 0, 0, 0

    @settings(
        max_examples=n_cycles,
        deadline=None,
        derandomize=IS_REPEATED,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(clusters)
    def run_one(entry: Entry) -> None:
        nonlocal n_done, n_clusters, n_needless
        if n_done < n_cycles:
            took, has_needless = run_to_rest(entry)
            n_done, n_clusters, n_needless = (
                n_done + took,
                n_clusters + 1,
                n_needless + has_needless,
            )

    run_one()
    assert n_done >= n_cycles
    assert n_needless * 100 <= MOST_NEEDLESS_PERCENT * n_clusters, f"{n_needless} of {n_clusters}"


def run_to_rest(entry: Entry) -> tuple[int, bool]:
    """How many cycles it took until nothing changed, and whether a victim was needless.

    At most as many as there are jobs decide anything; others only start what had been promised.
    """
    world = World.of(case_of(entry, "random"))
    last: Outcome | None = None
    n_deciding, promised, has_needless = 0, set[str](), False
    for cycle in range(1, 2 * len(world.jobs) + 3):
        outcome = run_cycle(world, cycle, time.perf_counter_ns)
        broken = list(broken_rules(world, outcome, last))
        needless = [why for why in broken if "could stay" in why or "promised places" in why]
        has_needless = has_needless or bool(needless)
        assert broken == needless, broken
        changes = [(id_, after.status) for id_, _, after in outcome.changed()]
        if not changes:
            return cycle, has_needless
        n_deciding += any(id_ not in promised for id_, _ in changes)
        assert n_deciding <= len(world.jobs), f"cycle {cycle} still decides: {changes}"
        promised = {id_ for id_, status in changes if status == "nominated"}
        world.settle(outcome.after)
        last = outcome
    raise AssertionError(f"after {cycle} cycles it still changes: {changes}")
