"""Random clusters run until nothing changes: every rule holds in every cycle, they do rest, and no
pod was evicted that runs again then.

$BALLAST_CYCLES says how many cycles are decided in all. Where it says nothing, 2,000 on the same
clusters every time; else on new ones. Half of the clusters are drawn by Hypothesis, which prefers
extremes, the other half evenly: each half has found errors that the other did not. Needless victims
and evictions in vain are rare, and counted: `MOST_NEEDLESS` and `MOST_IN_VAIN`.
"""

import json
import math
import os
import time
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import count

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from extender.scenario.load import case_of
from extender.scenario.outcome import Outcome
from extender.scenario.run import run_cycle
from extender.scenario.world import World
from tests.scenarios.clusters import Entry, entries
from tests.scenarios.judge.rules import firm_rules_broken, needless_victims
from tests.scenarios.repeatable import same_draws
from tests.scenarios.wide_clusters import crowded_entries, wide_entries
from tests.tools.plan_hash import drawn

CYCLES = int(os.environ.get("BALLAST_CYCLES", "2000"))
IS_REPEATED = "BALLAST_CYCLES" not in os.environ
#: Needless victims per thousand, in the clusters that Hypothesis draws and in those drawn evenly,
#: which are fuller: there more plans meet in one cycle.
MOST_NEEDLESS = 5
MOST_NEEDLESS_EVENLY = 20
#: Per thousand, where reclaim may move what has another place: pods that run again at rest.
MOST_IN_VAIN = 5
#: Clusters between two looks at how many cycles they took.
N_AT_A_TIME = 50
#: Seconds: three per hundred cycles are plenty, and Hypothesis may take five minutes to shrink.
LIMIT_S = 420 + CYCLES * 3 // 100


@pytest.mark.timeout(LIMIT_S)
def test_rules_hold_in_every_cycle_and_the_same_cluster_comes_to_rest() -> None:
    explore(entries(), CYCLES * 3 // 10)


@pytest.mark.timeout(LIMIT_S)
def test_they_hold_with_all_that_a_cluster_and_its_work_may_ask_for() -> None:
    explore(wide_entries(), CYCLES * 3 // 10)


@pytest.mark.timeout(LIMIT_S)
def test_they_hold_under_the_other_policies_too() -> None:
    explore(wide_entries(("demand-weighted", "priority")), CYCLES // 5)


@pytest.mark.timeout(LIMIT_S)
def test_they_hold_where_much_runs_and_much_waits() -> None:
    for policies in (("fairshare",), ("demand-weighted", "priority")):
        explore(crowded_entries(policies), CYCLES // 10)


def test_a_pod_that_stays_instead_of_moving_to_another_pool_breaks_no_limit() -> None:
    for clusters in (crowded_entries(), wide_entries()):
        for entry in drawn(clusters, 25, 522):
            _run_drawn(entry, Victims())


def explore(clusters: st.SearchStrategy[Entry], n_cycles: int) -> None:
    """Run clusters, so many at a time, until so many cycles were decided."""
    n_done, start = 0, 0 if IS_REPEATED else time.time_ns()
    victims, evenly = Victims(MOST_NEEDLESS), Victims(MOST_NEEDLESS_EVENLY)
    for at in count(start):
        if n_done >= n_cycles:
            for each in (victims, evenly):
                assert each.are_within_budget(), each
                assert each.n_in_vain <= MOST_IN_VAIN * each.n_movable / 1000 + 3, each
            return

        if at % 2:
            for entry in drawn(clusters, N_AT_A_TIME, at):
                n_done += _run_drawn(entry, evenly)
            continue

        @seed(at)
        @settings(
            max_examples=N_AT_A_TIME,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(clusters)
        def run_some(entry: Entry) -> None:
            nonlocal n_done
            n_done += run_to_rest(entry, victims)

        with same_draws() if IS_REPEATED else nullcontext():
            run_some()


def _run_drawn(entry: Entry, victims: "Victims") -> int:
    """As `run_to_rest`; a failure shows the cluster."""
    try:
        return run_to_rest(entry, victims)
    except AssertionError as error:
        error.add_note(json.dumps(entry))
        raise


@dataclass
class Victims:
    """Pods that were evicted or moved, and how many of them could have stayed. Of `n_movable`,
    which might have been moved instead of evicted, `n_in_vain` run again at rest. `most`: so many
    of a thousand may be needless."""

    most: int = MOST_NEEDLESS
    n: int = 0
    n_needless: int = 0
    n_movable: int = 0
    n_in_vain: int = 0
    #: Sum over clusters of the square of the needless ones: those of one cluster have one cause.
    squares: int = 0

    def add(self, n: int, n_needless: int) -> None:
        """Count those of one cluster."""
        self.n += n
        self.n_needless += n_needless
        self.squares += n_needless**2

    def add_evicted(self, world: World, evicted: set[str]) -> None:
        """Count the pods that were evicted on their way to this rest."""
        tasks = [world.tasks[id_] for id_ in evicted if id_ in world.tasks]
        self.n_movable += len(evicted)
        self.n_in_vain += sum(task.place.status == "running" for task in tasks)

    def are_within_budget(self) -> bool:
        """Whether there may be no more needless ones per thousand than the budget: what was seen
        is above it by less than three standard errors."""
        usual = self.n * self.most / 1000
        return self.n_needless - usual <= 3 * math.sqrt(self.squares)


def run_to_rest(entry: Entry, victims: Victims) -> int:
    """How many cycles it took until nothing changed; adds to `victims`.

    At most as many cycles as there are tasks decide anything: an evicted task may start on a node
    where the preemptor did not fit, and what its queue then has above its share is there for the
    preemptor's next task. All other cycles only start nominated tasks.
    """
    world = World.of(case_of(entry, "random"))
    last: Outcome | None = None
    n_deciding, promised, evicted = 0, set[str](), set[str]()
    n_victims = n_needless = 0
    for cycle in range(1, 2 * len(world.tasks) + 3):
        outcome = run_cycle(world, cycle, time.perf_counter_ns)
        broken = list(firm_rules_broken(world, outcome, last))
        assert not broken, broken
        n_victims += len(outcome.plan.evictions) + len(outcome.plan.moves)
        n_needless += len(list(needless_victims(world, outcome)))
        evicted |= {eviction.pod.uid for eviction in outcome.plan.evictions}
        changes = [(id_, after.status) for id_, _, after in outcome.changed()]
        if not changes:
            victims.add(n_victims, n_needless)
            if world.cluster.case.settings.reclaim_moves_victims:
                victims.add_evicted(world, evicted)
            return cycle
        n_deciding += any(id_ not in promised for id_, _ in changes)
        assert n_deciding <= len(world.tasks), f"cycle {cycle} still decides: {changes}"
        promised = {id_ for id_, status in changes if status == "nominated"}
        world.settle(outcome.after)
        last = outcome
    raise AssertionError(f"after {cycle} cycles it still changes: {changes}")


def test_a_pod_that_runs_again_at_rest_was_evicted_in_vain() -> None:
    task: Entry = {"name": "t", "gpu": 1, "state": "running", "node": "n"}
    jobs = [{"name": name, "queue": "q", "tasks": [task]} for name in ("a", "b")]
    jobs[1]["tasks"] = [{"name": "t", "gpu": 1}]
    entry: Entry = {"scenario": "v1", "id": "x", "nodes": [{"name": "n", "gpus": 1}], "jobs": jobs}
    victims = Victims()
    victims.add_evicted(World.of(case_of(entry, "x")), {"a/t", "b/t"})
    assert (victims.n_movable, victims.n_in_vain) == (2, 1)


def test_budget_is_missed_by_many_clusters_and_not_by_one() -> None:
    one, many = Victims(), Victims()
    one.add(169, 7)
    for _ in range(40):
        many.add(20, 1)
    assert one.are_within_budget()
    assert not many.are_within_budget()
