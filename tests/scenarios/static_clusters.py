"""Clusters in which nothing comes or ends: what is evicted after the first cycle, and for nothing.

The first cycle after a change should decide all that follows from it. What later cycles evict or
move is a follow-up; a pod that is evicted and runs again at rest was evicted in vain. `python -m
tests.scenarios.static_clusters` prints both for clusters with one, two and five priorities, and
with `--show N` the first N clusters with follow-ups, cycle by cycle.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from extender.scenario.load import case_of
from extender.scenario.outcome import Outcome
from extender.scenario.run import run_cycle
from extender.scenario.world import World
from tests.scenarios.clusters import Entry

#: Priorities of the work of a cluster, by name.
PRIORITIES: Final[dict[str, tuple[int, ...]]] = {
    "one": (50,),
    "two": (50, 75),
    "five": (25, 50, 60, 75, 90),
}
N_CLUSTERS: Final = 150
_STAGES: Final = ["allocate", "consolidate", "reclaim", "preempt", "stale-gangs"]
_SIZES: Final[tuple[int | str, ...]] = ("0.5", 1, 1, 1, 2, 2, 4)
_MOST_CYCLES: Final = 200


@dataclass
class Tally:
    """Pods evicted or moved: all, those after the first cycle, and those in vain."""

    n: int = 0
    n_late: int = 0
    n_in_vain: int = 0
    n_evicted: int = 0
    story: list[str] = field(default_factory=list)


def cluster(at: int, priorities: Sequence[int]) -> Entry:
    """A cluster of 16 GPUs, full of running work of some projects, with work of others waiting."""
    rng = Random(f"{at}/{len(priorities)}")
    n_nodes = rng.choice((2, 4))
    nodes = [{"name": f"n{ix}", "gpus": 16 // n_nodes} for ix in range(n_nodes)]
    n_projects = rng.randint(2, 4)
    queues = [
        {"name": f"p{ix}", "gpu": {"quota": rng.choice((0, 2, 4, 4, 8)), "weight": 1}}
        for ix in range(n_projects)
    ]
    free = {str(node["name"]): 16 // n_nodes for node in nodes}
    jobs: list[Entry] = []
    while any(free.values()) and len(jobs) < 14:
        job = _job(rng, f"r{len(jobs)}", rng.randrange(n_projects), priorities)
        if _seat(rng, job, free):
            jobs.append(job)
    for ix in range(rng.randint(3, 8)):
        jobs.append(_job(rng, f"w{ix}", rng.randrange(n_projects), priorities))
    settings = {"stages": _STAGES, "usageWeight": 0}
    return {
        "scenario": "v1",
        "id": f"static-{len(priorities)}-{at}",
        "settings": settings,
        "nodes": nodes,
        "queues": queues,
        "jobs": jobs,
    }


def _job(rng: Random, name: str, project: int, priorities: Sequence[int]) -> Entry:
    n = rng.choice((1, 1, 1, 1, 2, 3))
    gpu = rng.choice(_SIZES)
    return {
        "name": name,
        "queue": f"p{project}",
        "priority": rng.choice(priorities),
        "group": {"min": rng.choice((1, n))},
        "runningFor": rng.randint(10, 20_000),
        "tasks": [{"name": f"t{ix}", "gpu": gpu} for ix in range(n)],
    }


def _seat(rng: Random, job: Entry, free: dict[str, int]) -> bool:
    """Let the job run where there is room; fractions take a whole GPU."""
    taken: list[tuple[str, int]] = []
    for task in job["tasks"]:
        need = max(1, round(float(task["gpu"])))
        fitting = [name for name, left in free.items() if left >= need]
        if not fitting:
            for name, amount in taken:
                free[name] += amount
            return False
        name = rng.choice(fitting)
        free[name] -= need
        taken.append((name, need))
        task |= {"state": "running", "node": name}
        if isinstance(task["gpu"], str):
            task["cards"] = [str(free[name])]
    return True


def run(entry: Entry, tally: Tally) -> None:
    """Decide until nothing changes, and add to `tally`."""
    world = World.of(case_of(entry, "static"))
    evicted: set[str] = set()
    story: list[str] = []
    n_late = 0
    for cycle in range(1, _MOST_CYCLES):
        outcome = run_cycle(world, cycle, lambda: 0)
        plan = outcome.plan
        stops = {each.pod.uid for each in plan.evictions}
        moves = {each.placement.pod.uid for each in plan.moves}
        tally.n += len(stops) + len(moves)
        tally.n_evicted += len(stops)
        if cycle > 1:
            n_late += len(stops) + len(moves)
        evicted |= stops
        story += _tell(cycle, outcome)
        if not list(outcome.changed()):
            break
        world.settle(outcome.after)
    else:
        raise AssertionError(f"{entry['id']} does not come to rest")
    running = {task.id for task in world.tasks.values() if task.place.status == "running"}
    back = sorted(evicted & running)
    tally.n_late += n_late
    tally.n_in_vain += len(back)
    if n_late or back:
        tally.story.append(
            "\n".join(
                [
                    f"{entry['id']}: {n_late} late, in vain: {', '.join(back) or 'none'}",
                    *_describe(entry),
                    *story,
                ]
            )
        )


def _describe(entry: Entry) -> list[str]:
    quotas = ", ".join(f"{q['name']} {q['gpu']['quota']}" for q in entry["queues"])
    lines = [f"  {len(entry['nodes'])} nodes, quotas {quotas}"]
    for job in entry["jobs"]:
        tasks = job["tasks"]
        where = ",".join(task.get("node", "-") for task in tasks)
        lines.append(
            f"  {job['name']} {job['queue']} priority {job['priority']}:"
            f" {len(tasks)} x {tasks[0]['gpu']}, min {job['group']['min']}, on {where},"
            f" {job['runningFor']} s"
        )
    return lines


def _tell(cycle: int, outcome: Outcome) -> list[str]:
    plan = outcome.plan
    lines = [
        f"  {cycle}: {'start' if a.state == 'reserved' else 'await'} {p.pod.uid} on {p.node}"
        for a in plan.admissions
        for p in a.placements
        if cycle == 1 or outcome.before[p.pod.uid].status != "nominated"
    ]
    lines += [
        f"  {cycle}: {each.reason} {each.pod.uid} for {each.beneficiary}" for each in plan.evictions
    ]
    lines += [
        f"  {cycle}: move {m.placement.pod.uid} to {m.placement.node} for {m.beneficiary}"
        for m in plan.moves
    ]
    return lines


def measure(priorities: Sequence[int], n_clusters: int = N_CLUSTERS) -> Tally:
    """What happens in so many clusters of these priorities."""
    tally = Tally()
    for at in range(n_clusters):
        run(cluster(at, priorities), tally)
    return tally


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--show", type=int, default=0, help="clusters that are told in full")
    parser.add_argument("--clusters", type=int, default=N_CLUSTERS)
    asked = parser.parse_args()
    for name, priorities in PRIORITIES.items():
        tally = measure(priorities, asked.clusters)
        print(
            f"{name}: {tally.n} evicted or moved, {tally.n_late} after the first cycle,"
            f" {tally.n_evicted} evicted, {tally.n_in_vain} in vain"
        )
        for story in tally.story[: asked.show]:
            print(story)


if __name__ == "__main__":
    main()
