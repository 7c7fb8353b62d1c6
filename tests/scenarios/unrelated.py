"""Changes of a case on which no decision may depend: names, scales, and objects of no use.

Each takes a case as it is written and returns it changed, or None where the change means something.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final

Entry = dict[str, Any]
Change = Callable[[Entry], Entry | None]

#: Begins the names of what a change adds.
ADDED: Final = "added-"
#: Ends the names of renamed jobs after the part that turns their order round.
_OLD: Final = "-was-"
_FACTOR: Final = 7


def original_name(name: str) -> str:
    """The name that a job had before `renamed`."""
    return name.partition(_OLD)[2] or name


def renamed(case: Entry) -> Entry:
    """Queues and jobs have names in the reverse of their alphabetic order."""
    jobs = _turned(job["name"] for job in _jobs(case))
    queues = _turned(queue["name"] for queue in case["queues"])
    for queue in case["queues"]:
        queue["name"] = queues[queue["name"]]
        queue["parent"] = queues.get(queue["parent"], queue["parent"])
    for job in _jobs(case):
        job["name"] = jobs[job["name"]]
        job["queue"] = queues.get(job["queue"], job["queue"])
    for budget in case["budgets"]:
        budget["jobs"] = [jobs[name] for name in budget["jobs"]]
    for step in case["steps"]:
        step["finish"] = [jobs.get(name, name) for name in step["finish"]]
        step["set"] = {jobs[name]: change for name, change in step["set"].items()}
        for change in step["set"].values():
            if "queue" in change:
                change["queue"] = queues[change["queue"]]
    return case


def with_a_cordoned_node(case: Entry) -> Entry:
    """One more node, on which nothing may start."""
    labels = case["nodes"][0].get("labels", {}) if case["nodes"] else {}
    node = {"name": f"{ADDED}node", "gpus": 8, "labels": labels, "unschedulable": True}
    case["nodes"].append(node)
    return case


def with_empty_queues(case: Entry) -> Entry:
    """A department with a project, and a project beside them, in which nothing runs or waits."""
    parent = f"{ADDED}department"
    case["queues"] += [{"name": parent}, {"name": f"{ADDED}project", "parent": parent}]
    case["queues"].append({"name": f"{ADDED}root-project"})
    return case


def with_an_empty_pool(case: Entry) -> Entry | None:
    """A node pool of no nodes, after those that there are."""
    if not case["nodePools"]:
        return None
    case["nodePools"].append({"name": f"{ADDED}pool", "match": {"no": "such"}})
    return case


def with_a_typing_mistake(case: Entry) -> Entry | None:
    """The oldest and most urgent job of the last project selects a label that no node has."""
    task = {"name": "t", "gpu": 1, "nodeSelector": {"no-such": "label"}}
    return _with_impossible(case, task)


def with_a_pod_larger_than_any_node(case: Entry) -> Entry | None:
    """The same with a pod that no node has the GPUs for."""
    return _with_impossible(case, {"name": "t", "gpu": 60})


def with_a_gang_larger_than_any_node(case: Entry) -> Entry | None:
    """The same with a gang of such pods."""
    return _with_impossible(case, {"name": "t", "n": 2, "gpu": 60})


def with_a_pod_of_more_cpu_than_any_node(case: Entry) -> Entry | None:
    """The same with a pod that asks for no GPU."""
    return _with_impossible(case, {"name": "t", "gpu": 0, "cpu": "500000"})


def with_a_project_of_impossible_work(case: Entry) -> Entry | None:
    """A project with a quota and a rank above all others asks for what no node has."""
    changed = _with_impossible(case, {"name": "t", "gpu": 60})
    if changed is not None:
        queue = {"name": f"{ADDED}project", "gpu": {"quota": 100}, "priority": 1000}
        changed["queues"].append(queue)
        changed["jobs"][-1]["queue"] = queue["name"]
    return changed


def with_other_priorities(case: Entry) -> Entry:
    """Priorities of the same order, on the same side of 100."""
    holders = [*_jobs(case), *(each for step in case["steps"] for each in step["set"].values())]
    given = sorted({each.get("priority", 50) for each in holders})
    low, high = [p for p in given if p < 100], [p for p in given if p >= 100]
    other = {p: 3 + at for at, p in enumerate(low)}
    other |= {p: 1000 + _FACTOR * at for at, p in enumerate(high)}
    for each in holders:
        if "priority" in each:
            each["priority"] = other[each["priority"]]
    return case


def with_larger_weights(case: Entry) -> Entry | None:
    """All weights of GPUs times the same."""
    parents = {queue["parent"] for queue in case["queues"]}
    for queue in case["queues"]:
        if queue["name"] in parents and "weight" not in queue["gpu"]:
            # Its weight is its quota.
            return None
        queue["gpu"].setdefault("weight", 1)
        for figures in (queue["gpu"], *(pool["gpu"] for pool in queue["pools"].values())):
            if "weight" in figures:
                if not isinstance(figures["weight"], int):
                    return None
                figures["weight"] *= _FACTOR
    return case


CHANGES: Final[tuple[Change, ...]] = (
    renamed,
    with_a_cordoned_node,
    with_empty_queues,
    with_an_empty_pool,
    with_a_typing_mistake,
    with_a_pod_larger_than_any_node,
    with_a_gang_larger_than_any_node,
    with_a_pod_of_more_cpu_than_any_node,
    with_a_project_of_impossible_work,
    with_other_priorities,
    with_larger_weights,
)


def changed(case: Entry, change: Change) -> Entry | None:
    """A copy of the case, changed."""
    return change(deepcopy(case))


def _jobs(case: Entry) -> list[Entry]:
    return [*case["jobs"], *(job for step in case["steps"] for job in step["add"])]


def _turned(names: Any) -> dict[str, str]:
    listed = sorted(set(names))
    return {name: f"{len(listed) - at:04}{_OLD}{name}" for at, name in enumerate(listed)}


def _with_impossible(case: Entry, task: Entry) -> Entry | None:
    """In strict order such work may hold up its queue."""
    parents = {queue["parent"] for queue in case["queues"]}
    projects = [queue["name"] for queue in case["queues"] if queue["name"] not in parents]
    if not projects or case["settings"]["jobOrder"] == "strict-fifo":
        return None
    job = {"name": f"{ADDED}job", "queue": projects[-1], "age": 10_000_000, "priority": 99}
    case["jobs"].append(job | {"tasks": [task]})
    return case
