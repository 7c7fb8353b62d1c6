"""Short ways to write a case in a test.

case(nodes=[node(gpus=4)], queues=[queue("a", quota=2)], jobs=[job("j", "a", n=2, on="n0")])
"""

from typing import Any

from extender.scenario.load import case_of
from extender.scenario.model.case import Case
from extender.scenario.world import World

Entry = dict[str, Any]


def node(name: str = "n0", gpus: int = 8, **more: Any) -> Entry:
    return {"name": name, "gpus": gpus, **more}


def queue(name: str = "a", quota: Any = 0, **more: Any) -> Entry:
    figures = {key: more.pop(key) for key in ("limit", "weight") if key in more}
    return {"name": name, "gpu": {"quota": quota, **figures}, **more}


def job(name: str = "j", of: str = "a", n: int = 1, on: str = "", **more: Any) -> Entry:
    """A job of one task, repeated; `on` a node it runs there. Fields of tasks are taken from
    `more`, the rest is the job's."""
    task: Entry = {"name": "t", "n": n}
    if on:
        task |= {"state": "running", "node": on}
    for key in ("gpu", "gpuMemory", "cards", "devices", "cpu", "memory", "mig", "state"):
        if key in more:
            task[key] = more.pop(key)
    for key in ("nodeSelector", "nodeAffinity", "tolerations", "podAffinity", "order"):
        if key in more:
            task[key] = more.pop(key)
    return {"name": name, "queue": of, "tasks": more.pop("tasks", [task]), **more}


def entry(**more: Any) -> Entry:
    usual = {"scenario": "v1", "id": "x", "nodes": [node()], "queues": [queue()], "jobs": []}
    return usual | more


def case(**more: Any) -> Case:
    return case_of(entry(**more), "test")


def world(**more: Any) -> World:
    return World.of(case(**more))
