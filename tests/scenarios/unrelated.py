"""Changes of a case on which no decision may depend: names, scales, and objects of no use.

Each takes a case as it is written and returns it changed, or None where the change means something.
"""

from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any, Final

from msgspec import convert, to_builtins

from extender.scenario.model.case import Case

Entry = dict[str, Any]
Change = Callable[[Entry], Entry | None]

#: Begins the names of what a change adds.
ADDED: Final = "added-"
#: Ends the names of renamed jobs after the part that turns their order round.
_OLD: Final = "-was-"
_FACTOR: Final = 7
_RESOURCES: Final = ("gpu", "cpu", "memory")
#: What a department may state as its project does.
_OF_ANY_QUEUE: Final = ("priority", "usage", "parent", "reclaimMinRuntime", "preemptMinRuntime")


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
    """A department with a project, and beside them a project with a quota above all others; nothing
    runs or waits in them."""
    parent = f"{ADDED}department"
    case["queues"] += [{"name": parent}, {"name": f"{ADDED}project", "parent": parent}]
    rich = {"name": f"{ADDED}root-project", "gpu": {"quota": 100, "weight": 9}, "priority": 1000}
    case["queues"].append(rich)
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
    if not case["queues"]:
        return None
    name = f"{ADDED}impossible-project"
    case["queues"].append({"name": name, "gpu": {"quota": 100}, "priority": 1000})
    return _with_job(case, name, {"name": "t", "gpu": 60})


def in_a_stated_pool(case: Entry) -> Entry | None:
    """The node pool that there is by default is written down."""
    if case["nodePools"]:
        return None
    case["nodePools"] = [{"name": "default", "match": {}}]
    return case


def below_one_department(case: Entry) -> Entry | None:
    """Projects without departments have one, which has no quota that could bind."""
    if not case["queues"] or any(queue["parent"] for queue in case["queues"]):
        return None
    for queue in case["queues"]:
        queue["parent"] = f"{ADDED}department"
    case["queues"].insert(0, {"name": f"{ADDED}department", "gpu": {"quota": None, "weight": 1}})
    return case


def below_departments_of_their_own(case: Entry) -> Entry | None:
    """Each project has a department of its own, with the figures of the project."""
    parents = {queue["parent"] for queue in case["queues"]}
    projects = [queue for queue in case["queues"] if queue["name"] not in parents]
    for project in projects:
        has_budget = project["gpu"]["gpuHoursPerMonth"] is not None
        if has_budget or project["pools"] or project["nodeTypes"]:
            return None
        above = {key: deepcopy(project[key]) for key in _OF_ANY_QUEUE if key in project}
        for resource in _RESOURCES:
            above[resource] = {"weight": 1} | project[resource]
        above["name"] = project["parent"] = f"{ADDED}{project['name']}"
        case["queues"].insert(case["queues"].index(project), above)
    return case if projects else None


def of_one_user(case: Entry) -> Entry | None:
    """All work names the same user."""
    changes = [change for step in case["steps"] for change in step["set"].values()]
    if any(each.get("user") for each in (*_jobs(case), *changes)):
        return None
    for job in _jobs(case):
        job["user"] = f"{ADDED}user"
    return case


def with_a_selector_of_all_nodes(case: Entry) -> Entry:
    """Every second job selects a label that all nodes have."""
    label = {f"{ADDED}label": "v"}
    for node in case["nodes"]:
        node["labels"] = node["labels"] | label
    for job in _jobs(case)[::2]:
        for task in job["tasks"]:
            task["nodeSelector"] = task["nodeSelector"] | label
    return case


def with_limits_above_all_there_is(case: Entry) -> Entry:
    """Queues without a limit have one that never binds."""
    for queue in case["queues"]:
        for resource in _RESOURCES:
            if queue[resource].get("limit") is None:
                queue[resource]["limit"] = "10000Ti" if resource == "memory" else 100_000
    return case


def with_fractions_in_megabytes(case: Entry) -> Entry | None:
    """Work asks for the memory of the cards, which are alike, instead of a fraction of them."""
    sizes = {node["gpuMemoryMiB"] for node in case["nodes"] if node["gpus"]}
    fractions = [task for task in _tasks(case) if _is_fraction(task)]
    if len(sizes) != 1 or not fractions:
        return None
    size = sizes.pop()
    for task in fractions:
        mib = float(task.pop("gpu")) * size
        if not mib.is_integer():
            return None
        task["gpuMemory"] = int(mib)
    return case


def with_whole_cards_in_megabytes(case: Entry) -> Entry | None:
    """Work asks for all the memory of as many cards, which are alike, instead of whole cards."""
    sizes = {node["gpuMemoryMiB"] for node in case["nodes"] if node["gpus"]}
    if len(sizes) != 1 or not _has_whole_cards_only(case):
        return None
    (size,) = sizes
    for task in _tasks(case):
        n_cards = int(task.pop("gpu", 1))
        task.update({"gpuMemory": size, "devices": n_cards, "cards": []} if n_cards else {"gpu": 0})
    return case


def with_cards_by_claims(case: Entry) -> Entry | None:
    """A driver publishes the cards of all nodes, and work asks for them by claims."""
    if not _has_whole_cards_only(case):
        return None
    for node in case["nodes"]:
        node["offers"] = ["claim"]
    for task in _tasks(case):
        task["delivery"] = "claim"
    return case


def beside_a_copy(case: Entry) -> Entry | None:
    """A second node pool has the same nodes, with queues and jobs of its own that are the same."""
    if case["nodePools"] or case["topologies"] or any(q["nodePools"] for q in case["queues"]):
        return None
    n_jobs = len(case["jobs"])
    for at, job in enumerate(case["jobs"]):
        if job["age"] is None:
            job["age"] = (n_jobs - at) * 60
    copy = _with_prefix(deepcopy(case))
    for part, pool in ((case, "default"), (copy, f"{ADDED}pool")):
        part["nodePools"] = [{"name": pool, "match": {"pool": pool}}]
        for node in part["nodes"]:
            node["labels"] = node["labels"] | {"pool": pool}
        for queue in part["queues"]:
            queue["nodePools"] = [pool]
    for kind in ("nodePools", "nodes", "queues", "jobs", "budgets"):
        case[kind] += copy[kind]
    for step, more in zip(case["steps"], copy["steps"], strict=True):
        step["finish"] += more["finish"]
        step["add"] += more["add"]
        step["set"] |= more["set"]
    return case


def in_one_sub_group(case: Entry) -> Entry | None:
    """Jobs without sub-groups have one, with the minimum of the job."""
    plain = [job for job in _jobs(case) if not job["group"].get("children")]
    for job in plain:
        group, n_tasks = job["group"], sum(task["n"] for task in job["tasks"])
        least = n_tasks if group.get("min") is None else group.pop("min")
        group["children"] = [{"name": f"{ADDED}group", "min": least}]
        for task in job["tasks"]:
            task["group"] = f"{ADDED}group"
    return case if plain else None


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


#: Changes that are made together; at most one of a set adds a job.
TOGETHER: Final[tuple[tuple[Change, ...], ...]] = (
    (
        with_larger_weights,
        with_an_empty_pool,
        with_limits_above_all_there_is,
        with_a_typing_mistake,
        renamed,
    ),
    (
        with_other_priorities,
        with_a_cordoned_node,
        with_a_selector_of_all_nodes,
        below_one_department,
        with_a_pod_larger_than_any_node,
    ),
    (
        of_one_user,
        in_a_stated_pool,
        with_empty_queues,
        with_fractions_in_megabytes,
        with_whole_cards_in_megabytes,
        with_a_gang_larger_than_any_node,
    ),
    (
        in_one_sub_group,
        with_cards_by_claims,
        below_departments_of_their_own,
        with_a_project_of_impossible_work,
    ),
    (with_a_pod_of_more_cpu_than_any_node, beside_a_copy),
)
CHANGES: Final = tuple(change for several in TOGETHER for change in several)


def changed(case: Case, *changes: Change) -> Case | None:
    """The case with all changes that can be made and mean nothing; None if there is none."""
    found = None
    for change in changes:
        entry = change(to_builtins(found or case))
        if entry is not None:
            found = convert(entry, Case)
    return found


def _jobs(case: Entry) -> list[Entry]:
    return [*case["jobs"], *(job for step in case["steps"] for job in step["add"])]


def _tasks(case: Entry) -> list[Entry]:
    return [task for job in _jobs(case) for task in job["tasks"]]


def _has_whole_cards_only(case: Entry) -> bool:
    """Whether all work asks for whole cards, as the resource, or for none."""
    others = ("gpuMemory", "mig", "resources")
    return all(
        isinstance(task.get("gpu", 1), int)
        and task.get("delivery", "resource") == "resource"
        and not any(task.get(key) for key in others)
        for task in _tasks(case)
    )


def _is_fraction(task: Entry) -> bool:
    gpu = task.get("gpu", 1)
    return isinstance(gpu, float | str) and not str(gpu).endswith("m") and 0 < float(gpu) < 1


def _with_prefix(case: Entry) -> Entry:
    """Everything that has a name has another."""
    for each in (*case["nodes"], *case["queues"], *_jobs(case), *case["budgets"]):
        each["name"] = f"{ADDED}{each['name']}"
    for each in (*_jobs(case), *case["budgets"]):
        each["namespace"] = f"{ADDED}{each['namespace']}"
    for queue in case["queues"]:
        queue["parent"] = queue["parent"] and f"{ADDED}{queue['parent']}"
    for job in _jobs(case):
        job["queue"] = job["queue"] and f"{ADDED}{job['queue']}"
        for task in job["tasks"]:
            task["node"] = task["node"] and f"{ADDED}{task['node']}"
    for budget in case["budgets"]:
        budget["jobs"] = [f"{ADDED}{name}" for name in budget["jobs"]]
    for step in case["steps"]:
        step["finish"] = [f"{ADDED}{name}" for name in step["finish"]]
        step["set"] = {f"{ADDED}{name}": change for name, change in step["set"].items()}
        for change in step["set"].values():
            if "queue" in change:
                change["queue"] = f"{ADDED}{change['queue']}"
    return case


def _turned(names: Iterable[str]) -> dict[str, str]:
    listed = sorted(set(names))
    return {name: f"{len(listed) - at:04}{_OLD}{name}" for at, name in enumerate(listed)}


def _with_impossible(case: Entry, task: Entry) -> Entry | None:
    """In strict order such work may hold up its queue."""
    parents = {queue["parent"] for queue in case["queues"]}
    projects = [queue["name"] for queue in case["queues"] if queue["name"] not in parents]
    if not projects or case["settings"]["jobOrder"] == "strict-fifo":
        return None
    return _with_job(case, projects[-1], task)


def _with_job(case: Entry, queue: str, task: Entry) -> Entry:
    job = {"name": f"{ADDED}impossible-job", "queue": queue, "age": 10_000_000, "priority": 99}
    case["jobs"].append(job | {"tasks": [task]})
    return case
