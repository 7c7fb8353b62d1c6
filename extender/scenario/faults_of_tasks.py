"""Checks a task for contradictory fields."""

from collections.abc import Iterator
from typing import Final

from msgspec import UNSET

from extender.api.demand import mig_slices
from extender.api.units import MILLI_PER_GPU
from extender.scenario import amounts
from extender.scenario.model.jobs import Requirement, Task, Toleration

#: The values that each operator of a node affinity requires.
_VALUES: Final = {
    "In": "at least one",
    "NotIn": "at least one",
    "Exists": "none",
    "DoesNotExist": "none",
    "Gt": "one whole number",
    "Lt": "one whole number",
}


def faults_of_task(place: str, task: Task, *, has_groups: bool) -> Iterator[str]:
    """One sentence for each fault."""
    if "/" in task.name:
        yield f"{place}.name: {task.name}; accepted: a name without /, for tasks are job/task"
    if task.state != "pending" and not task.node:
        yield f"{place}.node: a task that is {task.state} needs the node that it is on"
    if task.group and not has_groups:
        yield f"{place}.group: the job's group has no children; accepted: none"
    milli = MILLI_PER_GPU if task.gpu is UNSET else amounts.gpus(task.gpu)
    if task.devices > 1 and not task.gpu_memory and not 0 < milli < MILLI_PER_GPU:
        what = "without a fraction of a card or gpuMemory"
        yield f"{place}.devices: {task.devices} {what}; accepted: 1 (gpu says how many whole cards)"
    for resource in task.mig:
        if not mig_slices(resource):
            accepted = "the resource of a MIG profile, such as nvidia.com/mig-1g.5gb"
            yield f"{place}.mig: {resource}; accepted: {accepted} (all others go in resources)"
    for at, rule in enumerate(task.node_affinity):
        yield from _in_requirement(f"{place}.nodeAffinity[{at}].values", rule)
    for at, toleration in enumerate(task.tolerations):
        yield from _in_toleration(f"{place}.tolerations[{at}]", toleration)


def _in_requirement(place: str, rule: Requirement) -> Iterator[str]:
    accepted, n = _VALUES[rule.operator], len(rule.values)
    is_met = {
        "none": n == 0,
        "at least one": n > 0,
        "one whole number": n == 1 and _is_whole(rule.values[0]),
    }[accepted]
    if not is_met:
        has = ", ".join(rule.values) or "none"
        yield f"{place}: {has} with operator {rule.operator}; accepted: {accepted}"


def _in_toleration(place: str, toleration: Toleration) -> Iterator[str]:
    if toleration.operator == "Exists" and toleration.value:
        yield f"{place}.value: {toleration.value} with operator Exists; accepted: none"
    elif toleration.operator == "Equal" and not toleration.key:
        yield f"{place}.key: none with operator Equal; accepted: the key of a taint"


def _is_whole(text: str) -> bool:
    try:
        int(text)
    except ValueError:
        return False
    return True
