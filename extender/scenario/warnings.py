"""Warnings about valid fields of a case that may not be meant.

A cluster accepts them too: a workload names a missing queue or topology, and waits; a field has no
effect. One sentence each, with its place in the file.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from extender.api.listing import listed
from extender.scenario import amounts
from extender.scenario.budgets import covers
from extender.scenario.faults import jobs_of
from extender.scenario.model.case import Case
from extender.scenario.model.jobs import Budget, Group, Job, Nearness, Task

#: Names that a warning lists before it counts the others.
_MOST_LISTED: Final = 8


@dataclass(slots=True, frozen=True)
class _Names:
    """The names that jobs may use. Projects are the queues without children; topologies have the
    labels of their levels."""

    projects: dict[str, None]
    departments: set[str]
    topologies: dict[str, list[str]]

    @classmethod
    def of(cls, case: Case) -> "_Names":
        """The names in the case."""
        departments = {queue.parent for queue in case.queues if queue.parent}
        projects = [queue.name for queue in case.queues if queue.name not in departments]
        levels = {each.name: [level.label for level in each.levels] for each in case.topologies}
        return cls(dict.fromkeys(projects), departments, levels)

    def why_no_project(self, name: str) -> str:
        """Why no job can be in the queue."""
        known = _listed(self.projects)
        if name in self.departments:
            return f"{name} has queues below it, so jobs go to those: {known}"
        return f"there is no queue {name}; there are: {known}"


def warnings_on(case: Case) -> Iterator[str]:
    """One sentence for each warning."""
    for at, node in enumerate(case.nodes):
        if node.numa:
            yield f"nodes[{at}].numa: has no effect: decisions ignore NUMA zones"
        if node.mig.instances and node.mig.strategy != "mixed":
            yield f"nodes[{at}].mig: its instances count, though strategy mixed is not stated"
    for at, queue in enumerate(case.queues):
        for name in ("gpu", "cpu", "memory"):
            used = getattr(queue.usage, name)
            if amounts.fraction(used) > 1:
                yield f"queues[{at}].usage.{name}: {used} is more than the whole cluster"
    names = _Names.of(case)
    for place, job in jobs_of(case):
        yield from _on_job(names, place, job)
    for at, budget in enumerate(case.budgets):
        yield from _on_budget(case, f"budgets[{at}]", budget)


def _on_job(names: _Names, place: str, job: Job) -> Iterator[str]:
    if job.queue and job.queue not in names.projects:
        yield f"{place}.queue: {names.why_no_project(job.queue)}"
    if not job.tasks:
        yield f"{place}.tasks: it has none"
    for at, task in enumerate(job.tasks):
        yield from _on_task(f"{place}.tasks[{at}]", task)
    yield from _on_group(names, f"{place}.group", job.group)


def _on_budget(case: Case, place: str, budget: Budget) -> Iterator[str]:
    known = {job.name: job for _, job in jobs_of(case)}
    if not budget.jobs:
        yield f"{place}.jobs: it covers none"
    for name in budget.jobs:
        if name not in known:
            yield f"{place}.jobs: there is no job {name}; there are: {_listed(known)}"
        elif not covers(budget, known[name]):
            there = known[name].namespace
            why = f"{name} is in namespace {there}, the budget in {budget.namespace}"
            yield f"{place}.jobs: {why}: it does not cover it"


def _on_task(place: str, task: Task) -> Iterator[str]:
    for field in ("node", "cards") if task.state == "pending" else ():
        if getattr(task, field):
            why = "has no effect on a pending task; nodeSelector keeps one on a node"
            yield f"{place}.{field}: {why}"


def _on_group(names: _Names, place: str, group: Group) -> Iterator[str]:
    n = len(group.children)
    if group.min_groups is not None and group.min_groups > n:
        yield f"{place}.minGroups: {group.min_groups}, and there are {n} children"
    if group.topology is not None:
        yield from _on_nearness(names, f"{place}.topology", group.topology)
    for at, child in enumerate(group.children):
        yield from _on_group(names, f"{place}.children[{at}]", child)


def _on_nearness(names: _Names, place: str, near: Nearness) -> Iterator[str]:
    labels = names.topologies.get(near.name)
    if labels is None:
        known = _listed(names.topologies)
        yield f"{place}.name: there is no topology {near.name}; there are: {known}"
        return
    for field, label in (("required", near.required), ("preferred", near.preferred)):
        if label is not None and label not in labels:
            why = f"topology {near.name} has no level {label}"
            yield f"{place}.{field}: {why}; there are: {_listed(labels)}"


def _listed(names: Iterable[str]) -> str:
    """The existing names."""
    return listed(names, _MOST_LISTED) or "none"
