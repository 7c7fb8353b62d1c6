"""What is added for a project takes nothing from it: at rest no project holds less because its
quota or its weight is larger, because more of its work waits, or because there is one more node.

For work of one GPU a pod, of one priority. It does not hold for other work: a large gang of the
project may start where small jobs of it ran.
"""

from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

from extender.scenario.load import case_of
from extender.scenario.run import run_cycle
from extender.scenario.world import World
from tests.tools.plan_hash import drawn

Entry = dict[str, Any]
_NEW_NODE: Entry = {"name": "added", "gpus": 2}


@st.composite
def _clusters(draw: st.DrawFn) -> Entry:
    """Up to three nodes, two departments and four projects; most GPUs are in use."""
    nodes: list[Entry] = [{"name": f"n{at}", "gpus": draw(st.integers(1, 4))} for at in range(3)]
    nodes = nodes[: draw(st.integers(1, 3))]
    departments = [f"d{at}" for at in range(draw(st.integers(0, 2)))]
    limits = st.sampled_from([None, None, None, 1, 2])
    queues: list[Entry] = [
        {"name": name, "gpu": {"quota": draw(st.integers(0, 4)), "limit": draw(limits)}}
        for name in departments
    ]
    projects = [f"p{at}" for at in range(draw(st.integers(2, 4)))]
    for name in projects:
        gpu = {
            "quota": draw(st.integers(0, 3)),
            "weight": draw(st.integers(0, 3)),
            "limit": draw(limits),
        }
        parent = draw(st.sampled_from(departments)) if departments else None
        priority = draw(st.sampled_from([100, 100, 101]))
        queues.append({"name": name, "parent": parent, "gpu": gpu, "priority": priority})
    owners = st.sampled_from(projects)
    jobs: list[Entry] = []
    for node in nodes:
        for _ in range(draw(st.integers(0, node["gpus"]))):
            ran_s = draw(st.sampled_from([10, 100, 1000]))
            task = {"name": "t", "state": "running", "node": node["name"]}
            name = f"r{len(jobs)}"
            jobs.append({"name": name, "queue": draw(owners), "runningFor": ran_s, "tasks": [task]})
    for at in range(draw(st.integers(1, 4))):
        task = {"name": "t", "n": draw(st.integers(1, 4))}
        group = {"min": 1}
        jobs.append({"name": f"w{at}", "queue": draw(owners), "group": group, "tasks": [task]})
    return {"scenario": "v1", "id": "random", "nodes": nodes, "queues": queues, "jobs": jobs}


def _at_rest(entry: Entry) -> dict[str, int]:
    """The GPUs that each project holds once nothing changes any more."""
    world = World.of(case_of(entry, "random"))
    for cycle in range(1, 2 * len(world.tasks) + 3):
        outcome = run_cycle(world, cycle, lambda: 0)
        if not any(True for _ in outcome.changed()):
            break
        world.settle(outcome.after)
    held = {queue["name"]: 0 for queue in entry["queues"] if queue["name"].startswith("p")}
    for job in world.jobs.values():
        held[job.spec.queue] += sum(task.place.status == "running" for task in job.tasks)
    return held


def test_what_is_added_for_a_project_takes_nothing_from_it() -> None:
    for entry in drawn(_clusters(), 60, 1):
        before = _at_rest(entry)
        for at, queue in enumerate(entry["queues"]):
            name, gpu = queue["name"], queue["gpu"]
            if name not in before:
                continue
            for figure in ("quota", "weight") if gpu["weight"] else ("quota",):
                richer = deepcopy(entry)
                richer["queues"][at]["gpu"][figure] += 1
                assert _at_rest(richer)[name] >= before[name], (name, figure, entry)
            job = {"name": "added", "queue": name, "tasks": [{"name": "t"}]}
            busier = entry | {"jobs": [*entry["jobs"], job]}
            assert _at_rest(busier)[name] >= before[name], (name, "work", entry)


def test_a_node_more_takes_nothing_from_any_project() -> None:
    for entry in drawn(_clusters(), 120, 2):
        before, after = _at_rest(entry), _at_rest(entry | {"nodes": [*entry["nodes"], _NEW_NODE]})
        assert all(after[name] >= before[name] for name in before), (before, after, entry)
