"""Random small clusters with everything that a scenario file can say, a few things at a time."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.scenarios.clusters import Entry, entries

Draw = st.DrawFn
_HOST = "kubernetes.io/hostname"


@st.composite
def wide_entries(draw: Draw, policies: tuple[str, ...] = ("fairshare",)) -> Entry:
    """A cluster of `entries`, widened in up to four ways. What runs keeps its place."""
    entry = draw(entries(policies))
    chosen = draw(st.sets(st.sampled_from(sorted(_WIDENINGS)), max_size=4))
    for name in sorted(chosen):
        _WIDENINGS[name](draw, entry)
    return entry


@st.composite
def crowded_entries(draw: Draw, policies: tuple[str, ...] = ("fairshare",)) -> Entry:
    """One of several nodes in which much runs and much waits, widened in four ways."""
    entry = draw(entries(policies).filter(_is_crowded))
    for name in sorted(draw(st.permutations(sorted(_WIDENINGS)))[:4]):
        _WIDENINGS[name](draw, entry)
    return entry


def _is_crowded(entry: Entry) -> bool:
    tasks = [task for job in entry["jobs"] for task in job["tasks"]]
    n_running = sum("node" in task for task in tasks)
    return n_running >= 3 and len(tasks) - n_running >= 3 and len(entry["nodes"]) > 1


def _often(draw: Draw, percent: int) -> bool:
    return draw(st.integers(0, 99)) < percent


def _runs(job: Entry) -> bool:
    return any("node" in task for task in job["tasks"])


def _add_labels(draw: Draw, entry: Entry, key: str, values: list[str]) -> None:
    for node in entry["nodes"]:
        node.setdefault("labels", {})[key] = draw(st.sampled_from(values))


def _add_pools(draw: Draw, entry: Entry) -> None:
    """Two node pools; queues and jobs list them in either order, and pools differ in how they
    place."""
    _add_labels(draw, entry, "pool", ["a", "b"])
    entry["nodePools"] = [{"name": name, "match": {"pool": name}} for name in "ab"]
    orders = st.sampled_from([[], ["a", "b"], ["b", "a"]])
    for pool in entry["nodePools"]:
        if _often(draw, 25):
            pool["placement"] = {"gpu": draw(st.sampled_from(["binpack", "spread", "fgd"]))}
    for queue in entry["queues"]:
        queue["nodePools"] = draw(orders)
        if _often(draw, 25):
            figures = {"quota": draw(st.integers(0, 3)), "limit": draw(_limits([2, 4]))}
            queue["pools"] = {draw(st.sampled_from("ab")): {"gpu": figures}}
    for job in entry["jobs"]:
        lists = orders if _runs(job) else st.sampled_from([[], ["a"], ["b"], ["a", "b"]])
        job["nodePools"] = draw(lists)


def _limits(values: list[int]) -> st.SearchStrategy[int | None]:
    return st.sampled_from([None, None, None, *values])


def _add_topology(draw: Draw, entry: Entry) -> None:
    """Zones and racks; gangs that wait ask for one of them, or would like it."""
    entry["topologies"] = [{"name": "t", "levels": [{"label": "zone"}, {"label": "rack"}]}]
    for at, node in enumerate(entry["nodes"]):
        zone = draw(st.sampled_from("xy"))
        rack = zone + draw(st.sampled_from(["0", "1"])) if at else zone + "0"
        node.setdefault("labels", {}).update({"zone": zone, "rack": rack})
    levels = st.sampled_from([None, "zone", "rack"])
    for job in entry["jobs"]:
        nodes = {task["node"] for task in job["tasks"] if "node" in task}
        if len(job["tasks"]) < 2 or len(nodes) > 1 or not _often(draw, 60):
            continue
        groups = [job["group"], *job["group"].get("children", [])]
        group = draw(st.sampled_from(groups))
        group["topology"] = {"name": "t", "required": draw(levels), "preferred": draw(levels)}


def _add_taints(draw: Draw, entry: Entry) -> None:
    """Labels to select by, taints, and work that tolerates them."""
    _add_labels(draw, entry, "type", ["v", "w"])
    for node in entry["nodes"]:
        if _often(draw, 25):
            node["taints"] = [{"key": "k", "value": "v"}]
    for job in entry["jobs"]:
        rule: dict[str, Any] = {}
        if _often(draw, 20):
            rule["nodeSelector"] = {"type": draw(st.sampled_from("vw"))}
        if _often(draw, 20):
            operator = draw(st.sampled_from(["In", "NotIn"]))
            rule["nodeAffinity"] = [{"key": "type", "operator": operator, "values": ["v"]}]
        if _often(draw, 50):
            rule["tolerations"] = [{"key": "k", "operator": "Exists"}]
        for task in job["tasks"]:
            task.update({} if "node" in task else rule)


def _add_neighbours(draw: Draw, entry: Entry) -> None:
    """Work that keeps away from others of its namespace, or goes where one of them is."""
    _add_labels(draw, entry, "zone", ["x", "y"])
    keys = st.sampled_from([_HOST, _HOST, "zone"])
    for job in entry["jobs"]:
        job["namespace"] = draw(st.sampled_from(["s", "t", "default"]))
        kind = draw(st.sampled_from(["", "", "", "podAntiAffinity", "podAffinity"]))
        if kind and not _runs(job):
            term = {"topologyKey": draw(keys), "labels": {}}
            for task in job["tasks"]:
                task[kind] = [term]


def _add_instances(draw: Draw, entry: Entry) -> None:
    """A node with cards cut into MIG instances, and work that asks for instances."""
    small, large = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb"
    counts = {small: draw(st.integers(1, 4)), large: draw(st.integers(0, 2))}
    mig = {"strategy": "mixed", "instances": counts}
    entry["nodes"].append({"name": "cut", "gpus": 2, "cpu": "64", "mig": mig})
    room = dict(counts)
    for job in entry["jobs"]:
        if _runs(job) or not _often(draw, 40):
            continue
        profile = draw(st.sampled_from([small, small, large]))
        runs = _often(draw, 50) and room[profile] >= len(job["tasks"])
        for task in job["tasks"]:
            task.pop("gpu", None)
            task["mig"] = {profile: 1}
            if runs and job["priority"] < 100:
                task.update({"state": "running", "node": "cut"})
                room[profile] -= 1


def _add_memory(draw: Draw, entry: Entry) -> None:
    """Cards of two sizes; fractions by memory, and fractions of two cards."""
    for node in entry["nodes"]:
        if _often(draw, 40):
            node["gpuMemoryMiB"] = 32768
    for job in entry["jobs"]:
        if _runs(job) or job["tasks"][0].get("gpu") not in ("0.25", "0.5"):
            continue
        way = draw(st.sampled_from(["", "memory", "memory", "cards"]))
        for task in job["tasks"]:
            if way == "memory":
                task["gpuMemory"] = 4096 if task["gpu"] == "0.25" else 8192
                del task["gpu"]
            elif way == "cards":
                task["devices"] = 2


def _add_trees(draw: Draw, entry: Entry) -> None:
    """Groups of groups, of which some are enough."""
    for job in entry["jobs"]:
        tasks = job["tasks"]
        n_running = sum("node" in task for task in tasks)
        if len(tasks) < 3 or n_running not in (0, len(tasks)) or "children" in job["group"]:
            continue
        for at, task in enumerate(tasks):
            task["group"] = "abc"[min(at, 2)]
        inner = {"name": "i", "children": [{"name": "a", "min": 1}, {"name": "b", "min": 1}]}
        job["group"] = {
            "minGroups": draw(st.integers(1, 2)),
            "children": [
                inner | draw(st.sampled_from([{}, {"minGroups": 1}])),
                {"name": "c", "min": draw(st.integers(1, len(tasks) - 2))},
            ],
        }


def _add_orders(draw: Draw, entry: Entry) -> None:
    """Tasks that go before others of their job."""
    for job in entry["jobs"]:
        for task in job["tasks"]:
            task["order"] = draw(st.sampled_from([0, 0, 1, 2]))


def _add_times(draw: Draw, entry: Entry) -> None:
    """Minimum run times, delays before taking, gangs below their minimum for a while."""
    for queue in entry["queues"]:
        queue["reclaimMinRuntime"] = draw(st.sampled_from([0, 0, 300]))
        queue["preemptMinRuntime"] = draw(st.sampled_from([0, 0, 300]))
    for job in entry["jobs"]:
        if _often(draw, 30):
            job["preemptionDelay"] = draw(st.sampled_from([0, 30, 10_000]))
        if _often(draw, 30):
            grace = draw(st.sampled_from([None, 0, 60]))
            job["stale"] = {"for": draw(st.sampled_from([0, 30, 100])), "grace": grace}


def _add_host_quotas(draw: Draw, entry: Entry) -> None:
    """Nodes with little CPU, and quotas and limits of it."""
    for node in entry["nodes"]:
        if node.get("cpu") == "64":
            node["cpu"] = draw(st.sampled_from(["64", "16", "8"]))
    for queue in entry["queues"]:
        if _often(draw, 50):
            quota, limit = draw(st.sampled_from([0, 1, 2, 4])), draw(_limits([3, 5]))
            queue["cpu"] = {"quota": quota, "limit": limit, "weight": 1}


def _add_root(draw: Draw, entry: Entry) -> None:
    """One more level above all queues; limits on it, and past use."""
    root = {"quota": None, "limit": draw(_limits([4, 6])), "weight": 1}
    for queue in entry["queues"]:
        queue["parent"] = queue["parent"] or "root"
        queue["usage"] = {"gpu": draw(st.sampled_from([0, 0, "0.25", "0.5"]))}
    entry["queues"].insert(0, {"name": "root", "parent": None, "gpu": root})


def _add_limits(draw: Draw, entry: Entry) -> None:
    """Tight limits of departments and projects."""
    for queue in entry["queues"]:
        queue["gpu"]["limit"] = draw(_limits([1, 2, 3]))


def _bound_moves(draw: Draw, entry: Entry) -> None:
    """At most so many are moved for one."""
    entry["settings"]["maxConsolidationVictims"] = draw(st.sampled_from([0, 1, 2]))


def _add_budgets(draw: Draw, entry: Entry) -> None:
    """Budgets of GPU-hours, of which some are used."""
    above = {queue["parent"] for queue in entry["queues"]}
    for queue in entry["queues"]:
        if queue["name"] not in above:
            queue["gpu"] |= {"gpuHoursPerMonth": 1, "gpuHoursUsed": draw(st.sampled_from([0, 1]))}


def _add_replicas(draw: Draw, entry: Entry) -> None:
    """Jobs of a queue are replicas of one owner, which states a floor."""
    floors = {queue["name"]: draw(st.integers(1, 3)) for queue in entry["queues"]}
    for job in entry["jobs"]:
        if _often(draw, 70):
            job |= {"replicaOf": job["queue"], "floor": floors[job["queue"]], "kind": "inference"}


def _add_users(draw: Draw, entry: Entry) -> None:
    """Work names one of two users, or none."""
    for job in entry["jobs"]:
        job["user"] = draw(st.sampled_from(["ann", "ben", ""]))


_WIDENINGS: dict[str, Callable[[Draw, Entry], None]] = {
    "budgets": _add_budgets,
    "host quotas": _add_host_quotas,
    "instances": _add_instances,
    "limits": _add_limits,
    "memory": _add_memory,
    "moves": _bound_moves,
    "neighbours": _add_neighbours,
    "orders": _add_orders,
    "pools": _add_pools,
    "replicas": _add_replicas,
    "root": _add_root,
    "taints": _add_taints,
    "times": _add_times,
    "topology": _add_topology,
    "trees": _add_trees,
    "users": _add_users,
}
