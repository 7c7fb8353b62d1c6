"""Random clusters whose pools empty nodes: what each such plan leaves, and that there is an end."""

import time
from collections.abc import Iterator

import pytest

from extender.api.reasons import Reason
from extender.policy.plan import Move
from extender.scenario.load import case_of
from extender.scenario.model.case import Step
from extender.scenario.outcome import Outcome
from extender.scenario.run import run_cycle, take_step
from extender.scenario.world import World
from tests.scenarios.clusters import Entry, entries
from tests.scenarios.judge.rules import firm_rules_broken
from tests.scenarios.wide_clusters import wide_entries
from tests.tools.plan_hash import drawn

N_CLUSTERS = 350
AFTER_S = 600
#: Cycles of a cluster at most, so far apart that each pod may move again.
N_CYCLES = 30


@pytest.mark.parametrize(
    ("clusters", "least"), [(entries(), 20), (wide_entries(), 20)], ids=["plain", "wide"]
)
def test_a_node_is_emptied_whole_onto_used_nodes_and_emptying_ends(
    clusters: object, least: int
) -> None:
    n_emptied = 0
    for entry in drawn(clusters, N_CLUSTERS, 7):  # type: ignore[arg-type]
        n_emptied += _run(_asking(entry))
    assert n_emptied >= least


def _asking(entry: Entry) -> Entry:
    """The cluster when it asks for it, without most of the work that waits, which comes first."""
    settings = entry["settings"]
    settings["consolidateAfter"] = AFTER_S
    settings["stages"] = [*settings["stages"], "empty-nodes"]
    saves = {"checkpoint": AFTER_S // 2}
    kept = [job | saves for at, job in enumerate(entry["jobs"]) if _runs(job) or at % 8 == 0]
    names = {job["name"] for job in kept}
    budgets = [each | {"jobs": [*names & set(each["jobs"])]} for each in entry.get("budgets", ())]
    return entry | {"jobs": kept, "budgets": [each for each in budgets if each["jobs"]]}


def _runs(job: Entry) -> bool:
    return all(task.get("state") == "running" for task in job["tasks"])


def _run(entry: Entry) -> int:
    """How many nodes were emptied before the cluster came to rest."""
    world, n_emptied = World.of(case_of(entry, "random")), 0
    for cycle in range(1, N_CYCLES + 1):
        outcome = run_cycle(world, cycle, time.perf_counter_ns)
        broken = [*firm_rules_broken(world, outcome, None), *_broken(world, outcome)]
        assert not broken, (broken, entry)
        moves = _emptying(outcome)
        n_emptied += len({move.placement.pod.node for move in moves})
        if not any(outcome.changed()):
            return n_emptied
        take_step(world, outcome, Step(after=2 * AFTER_S))
    raise AssertionError(entry)


def _emptying(outcome: Outcome) -> list[Move]:
    return [move for move in outcome.plan.moves if move.reason is Reason.NODE_EMPTIED]


def _broken(world: World, outcome: Outcome) -> Iterator[str]:
    """One sentence for each promise that the plan breaks."""
    moves, pool_of = _emptying(outcome), world.cluster.pool_of_node
    sources = {move.placement.pod.node for move in moves}
    if len(sources) != len({pool_of(node) for node in sources}):
        yield f"more than one node of a pool is emptied: {sources}"
    used = {place.node for place in outcome.before.values() if place.cards}
    for move in moves:
        pod, to = move.placement.pod, move.placement.node
        if to in sources or to not in used:
            yield f"{pod.uid} moves to {to}, which is not used or is emptied"
        if pool_of(to) != pool_of(pod.node):
            yield f"{pod.uid} leaves its pool"
    pools = {pool_of(node) for node in sources}
    for id_, before, after in outcome.changed():
        if not after.is_moved and {pool_of(before.node), pool_of(after.node)} & pools:
            yield f"{id_} changes beside"
    for id_, place in outcome.after.items():
        if place.node in sources:
            yield f"{id_} stays on {place.node}"
