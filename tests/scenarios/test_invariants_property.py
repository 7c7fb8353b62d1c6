"""Random clusters run until nothing changes: every rule holds in every cycle, and they do rest.

$BALLAST_CYCLES says how many cycles are decided in all (2,000 where it says nothing).
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
#: Clusters that Hypothesis makes in one go.
EXAMPLES = 500
#: Seconds: three per hundred cycles are plenty, and Hypothesis may take five minutes to shrink.
LIMIT_S = 420 + CYCLES * 3 // 100
RUN = settings(
    max_examples=min(EXAMPLES, CYCLES),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.mark.timeout(LIMIT_S)
def test_rules_hold_in_every_cycle_and_the_same_cluster_comes_to_rest() -> None:
    explore(entries(), CYCLES)


@pytest.mark.timeout(LIMIT_S)
def test_they_hold_under_the_other_policies_too() -> None:
    explore(entries(("demand-weighted", "priority")), CYCLES // 4)


def explore(clusters: st.SearchStrategy[Entry], n_cycles: int) -> None:
    """Run clusters until so many cycles were decided."""
    n_done = 0

    @RUN
    @given(clusters)
    def run_one(entry: Entry) -> None:
        nonlocal n_done
        n_done += run_to_rest(entry)

    while n_done < n_cycles:
        run_one()


def run_to_rest(entry: Entry) -> int:
    """How many cycles it took until nothing changed: at most one more than there are jobs."""
    world = World.of(case_of(entry, "random"))
    last: Outcome | None = None
    for cycle in range(1, len(world.jobs) + 2):
        outcome = run_cycle(world, cycle, time.perf_counter_ns)
        broken = list(broken_rules(world, outcome, last))
        assert not broken, broken
        if not list(outcome.changed()):
            return cycle
        world.settle(outcome.after)
        last = outcome
    changes = [(id_, after.status) for id_, _, after in outcome.changed()]
    raise AssertionError(f"after {cycle - 1} cycles it still changes: {changes}")
