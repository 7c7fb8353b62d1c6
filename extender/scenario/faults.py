"""Checks a case for contradictory fields, and for values that would break deciding.

One sentence each, with its place in the file and the accepted values. References to missing objects
(a queue, a topology) are no fault, because in a cluster a workload waits for them: see `warnings`.
Faults of the whole cluster (overcommitted cards, a cycle of queues) are reported when it is built,
see `cluster` and `world`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from extender.api.reasons import Reason
from extender.scenario.faults_of_tasks import faults_of_task
from extender.scenario.model.case import Case
from extender.scenario.model.expectations import Expectation
from extender.scenario.model.jobs import Budget, Group, Job
from extender.scenario.model.simulation import Arrivals, Span
from extender.scenario.model.values import MOST

#: Maximum depth of nested groups: more levels than any topology has.
_MOST_DEEP: Final = 16


def faults_of(case: Case) -> Iterator[str]:
    """One sentence for each fault."""
    yield from _repeated("settings.stages", case.settings.stages)
    yield from _repeated("nodePools", [pool.name for pool in case.node_pools])
    yield from _repeated("topologies", [topology.name for topology in case.topologies])
    for at, topology in enumerate(case.topologies):
        yield from _repeated(f"topologies[{at}].levels", [each.label for each in topology.levels])
    for place, job in jobs_of(case):
        yield from _in_job(place, job)
    names = [f"{each.namespace}/{each.name}" for each in case.budgets]
    yield from _repeated("budgets", names)
    for at, budget in enumerate(case.budgets):
        yield from _in_budget(f"budgets[{at}]", budget)
    for name in case.simulate.runs.keys() - {job.name for job in case.jobs}:
        yield f"simulate.runs[{name}]: there is no such job in jobs"
    for name, span in case.simulate.runs.items():
        yield from _in_span(f"simulate.runs[{name}]", span)
    for at, line in enumerate(case.simulate.arrivals):
        yield from _in_arrivals(f"simulate.arrivals[{at}]", line)
    yield from _in_expectation("expect", case.expect)
    for at, step in enumerate(case.steps):
        yield from _in_expectation(f"steps[{at}].expect", step.expect)
    n_pods = sum(task.n for _, job in jobs_of(case) for task in job.tasks)
    if n_pods > MOST:
        yield f"jobs: they have {n_pods:,} pods together; accepted: up to {MOST:,}"


def jobs_of(case: Case) -> Iterator[tuple[str, Job]]:
    """Every job of the case with its place; each line of arrivals is one."""
    for at, job in enumerate(case.jobs):
        yield f"jobs[{at}]", job
    for step_at, step in enumerate(case.steps):
        for at, job in enumerate(step.add):
            yield f"steps[{step_at}].add[{at}]", job
    for at, line in enumerate(case.simulate.arrivals):
        yield f"simulate.arrivals[{at}].job", line.job


def _in_job(place: str, job: Job) -> Iterator[str]:
    if "/" in job.name:
        yield f"{place}.name: {job.name}; accepted: a name without /, for tasks are job/task"
    if "/" in job.namespace:
        yield f"{place}.namespace: {job.namespace}; accepted: a name without /"
    for at, task in enumerate(job.tasks):
        yield from faults_of_task(f"{place}.tasks[{at}]", task, has_groups=bool(job.group.children))
    if bool(job.replica_of) != bool(job.floor):
        yield f"{place}: replicaOf or floor by itself; accepted: both or neither"
    if _depth(job.group) > _MOST_DEEP:
        yield f"{place}.group: groups are nested more than {_MOST_DEEP} deep"


def _in_arrivals(place: str, line: Arrivals) -> Iterator[str]:
    if [line.at, line.per_day, line.keep].count(None) != 2:
        yield f"{place}: accepted: one of at, perDay and keep"
    if line.count > 1 and not line.every:
        yield f"{place}.count: {line.count} without every; accepted: every and count"
    yield from _in_span(f"{place}.run", line.run)
    if line.keep is not None and _is_instant(line.run):
        yield f"{place}.run: 0 with keep, so that jobs would come without end; accepted: above 0"
    for at, task in enumerate(line.job.tasks):
        if task.state != "pending":
            yield f"{place}.job.tasks[{at}].state: {task.state}; accepted: pending"


def _in_span(place: str, span: Span | None) -> Iterator[str]:
    if isinstance(span, list) and span[0] > span[1]:
        yield f"{place}: {span}; accepted: the shorter time first"


def _is_instant(run: Span | None) -> bool:
    return run is not None and (run[0] if isinstance(run, list) else run) < 1


def _in_budget(place: str, budget: Budget) -> Iterator[str]:
    for field, name in (("name", budget.name), ("namespace", budget.namespace)):
        if "/" in name:
            yield f"{place}.{field}: {name}; accepted: a name without /"
    bounds = (budget.min_available, budget.max_unavailable)
    if bounds.count(None) != 1:
        n = "both" if None not in bounds else "neither"
        yield f"{place}: it says {n}; accepted: one of minAvailable and maxUnavailable"
    yield from _repeated(f"{place}.jobs", budget.jobs)


def _depth(group: Group) -> int:
    """How deep its groups are nested; counts only up to the accepted depth."""
    n, level = 0, [group]
    while level and n <= _MOST_DEEP:
        n, level = n + 1, [child for each in level for child in each.children]
    return n


def _in_expectation(place: str, expected: Expectation) -> Iterator[str]:
    for name, job in expected.jobs.items():
        if job.reason is not None and job.reason not in set(Reason):
            accepted = ", ".join(Reason)
            yield f"{place}.jobs[{name}].reason: {job.reason} is none; accepted: {accepted}"


def _repeated(place: str, names: Iterable[str]) -> Iterator[str]:
    for name, n in Counter(names).items():
        if n > 1:
            yield f"{place}: {name} is there {n} times; accepted: each once"
