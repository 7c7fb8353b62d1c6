"""Whether a plan evicts and moves no more than its preemptors need.

Left out is what can stay by itself: one task where its job may go on with it, else as many of its
job as may run together. With everything else of the plan done, the beneficiary must then lack a
place, or start fewer at once. A queue of policy `demand-weighted` evicts its own surplus even if
nothing waits, so victims there are not looked at.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import combinations, islice

from extender.scenario.outcome import Outcome
from extender.scenario.world import World
from extender.state.model import UNLIMITED
from extender.state.trees import is_satisfied
from tests.scenarios.judge.counterfactual import WhatIf, tasks_placed

#: Subsets of one job's victims that are tried; more than a hand-made case has.
_MOST_SUBSETS = 24


def wasted_victims(world: World, outcome: Outcome) -> Iterator[str]:
    """One sentence for each victim that could stay, and for each that is evicted in vain."""
    for key, victims in _by_beneficiary(world, outcome).items():
        job = next((job for job in world.jobs.values() if job.key == key), None)
        placed = tasks_placed(job, outcome) if job else []
        if job is None or not any(outcome.after[id_].status == "nominated" for id_ in placed):
            yield f"{', '.join(victims)}: leaves for {key}, which gets no place for it"
            continue
        for unit in _units(world, outcome, victims):
            if WhatIf(world, outcome, job, victims, unit).fits(placed):
                yield f"{', '.join(unit)}: could stay, {job.spec.name} has its place without that"


def n_checks(world: World, outcome: Outcome) -> int:
    """About how many tasks `wasted_victims` looks at."""
    plan = outcome.plan
    return len(world.tasks) * (len(plan.evictions) + len(plan.moves))


def broken_promises(world: World, last: Outcome, outcome: Outcome) -> Iterator[str]:
    """Nominations are kept: a job starts as many tasks as it had nominated, unless its nomination
    is given up and another job is nominated on one of its nodes, or within a limit of its queues.
    """
    promised, nodes = Counter[str](), dict[str, set[str]]()
    for id_, _, after in last.changed():
        if after.status == "nominated":
            promised[_job_of(id_)] += 1
            nodes.setdefault(_job_of(id_), set()).add(after.node)
    started = Counter(
        _job_of(id_)
        for id_, before, after in outcome.changed()
        if after.status == "bound" and before.status == "pending"
    )
    taken = {
        (_job_of(id_), after.node)
        for id_, before, after in outcome.changed()
        if after.status == "nominated" and before.status != "nominated"
    }
    taken_nodes = {node for _, node in taken}
    taken_limits = {limit for job, _ in taken for limit in _limits_of(world, job)}
    dropped = {key.rpartition("/")[2] for key in outcome.plan.drops}
    for job, n in promised.items():
        is_taken = not taken_nodes.isdisjoint(nodes[job])
        is_taken = is_taken or not taken_limits.isdisjoint(_limits_of(world, job))
        if started[job] < n and not (job in dropped and is_taken):
            yield f"{job}: {n} of its tasks were promised places, {started[job]} start"


def _limits_of(world: World, job: str) -> Iterator[tuple[str, str]]:
    """The queues of the job, by node pool, that have a limit or have used up their budget."""
    cluster, spent = world.cluster, world.months.spent_quotas(world.cluster)
    for queue in cluster.lineage(world.jobs[job].spec.queue):
        for pool, quota in cluster.queue_views[queue.name].pools.items():
            is_limited = any(each.limit < UNLIMITED for each in quota.figures)
            if is_limited or (queue.name, pool) in spent:
                yield queue.name, pool


def _job_of(id_: str) -> str:
    return id_.rpartition("/")[0]


def _by_beneficiary(world: World, outcome: Outcome) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    plan = outcome.plan
    leaving = [(e.beneficiary, e.pod) for e in plan.evictions]
    leaving += [(move.beneficiary, move.placement.pod) for move in plan.moves]
    for beneficiary, pod in leaving:
        pool = world.cluster.pools.get(world.cluster.pool_of_node(pod.node))
        if beneficiary and pool is not None and pool.policy != "demand-weighted":
            found.setdefault(beneficiary, []).append(pod.uid)
    return found


def _units(world: World, outcome: Outcome, victims: list[str]) -> Iterator[list[str]]:
    """What can be left out together, job by job."""
    chosen = set(victims)
    for job in world.jobs.values():
        gone = [task for task in job.tasks if task.id in chosen]
        moved = [task.id for task in gone if outcome.after[task.id].is_moved]
        yield from ([id_] for id_ in moved)
        stopped = [task for task in gone if task.id not in moved]
        kept = [task for task in job.tasks if outcome.after[task.id].has_later]
        subsets = (
            list(subset)
            for size in range(1, len(stopped) + 1)
            for subset in combinations(stopped, size)
        )
        n_found = 0
        for subset in islice(subsets, _MOST_SUBSETS * max(1, len(stopped))):
            groups = [task.view.group for task in (*kept, *subset)]
            if is_satisfied(job.tree, groups):
                n_found += 1
                yield [task.id for task in subset]
                if n_found == max(len(stopped), 1):
                    break
        # The rest of a gang that leaves for several beneficiaries cannot stay for one of them.
        was = [task.view.group for task in job.tasks if outcome.before[task.id].has_later]
        if stopped and not n_found and not is_satisfied(job.tree, was):
            yield [task.id for task in stopped]
