"""What holds in every cycle whatever a case expects, as sentences about what does not.

What a file starts with may be over a bound; then it must not grow. So a cycle that changes nothing
breaks no rule; nine of ten are so in long runs, and they are not looked at further.
"""

from collections import Counter
from collections.abc import Iterator

from extender.api.units import MILLI_PER_GPU
from extender.scenario.outcome import Outcome
from extender.scenario.places import Place
from extender.scenario.snapshot import allowed_now, stale_since
from extender.scenario.world import RunJob, RunTask, World
from extender.state.card_shares import card_shares
from extender.state.model import GPU, PoolQuota, budget_hold_s
from extender.state.trees import is_satisfied
from tests.scenarios.judge.allocations import (
    CPU,
    MEMORY,
    PODS,
    Allocations,
    held_later,
    held_now,
    limit_of,
)
from tests.scenarios.judge.floors import taken_from_floors
from tests.scenarios.judge.node_rules import misplaced

_RESOURCES = ("milli-GPU", "milli-CPU", "of memory")


def violations(world: World, outcome: Outcome) -> Iterator[str]:
    """One sentence for each rule that the cycle breaks; `world` is as it was before."""
    yield from decided_twice(outcome)
    if not any(outcome.changed()):
        return
    yield from wrong_places(world, outcome)
    yield from misplaced(world, outcome)
    yield from broken_gangs(world, outcome)
    yield from protected_victims(world, outcome)
    yield from taken_from_floors(world, outcome)
    yield from broken_budgets(world, outcome)
    moments = ((held_now, "now"), (held_later, "once all have left"))
    for held_at, moment in moments:
        was, has = held_at(world, outcome.before), held_at(world, outcome.after)
        yield from overfull(world, was, has, moment)
        yield from passed_bounds(world, was, has, moment)


def decided_twice(outcome: Outcome) -> Iterator[str]:
    """A task is on one node: the plan says one thing about it."""
    plan = outcome.plan
    told = Counter(p.pod.uid for admission in plan.admissions for p in admission.placements)
    told.update(eviction.pod.uid for eviction in plan.evictions)
    told.update(move.placement.pod.uid for move in plan.moves)
    for id_, n in told.items():
        if n > 1:
            yield f"{id_}: the plan decides on it {n} times"


def untold_waits(world: World, outcome: Outcome) -> Iterator[str]:
    """A job with pods that wait has a reason."""
    for job in world.jobs.values():
        waits = any(outcome.after[task.id].status == "pending" for task in job.tasks)
        if waits and job.key not in outcome.plan.waits:
            yield f"{job.spec.name}: it waits without a reason"


def wrong_places(world: World, outcome: Outcome) -> Iterator[str]:
    """New places are on usable nodes of the job's pools, with as much of cards as is asked for."""
    for job in world.jobs.values():
        for task in job.tasks:
            place, was = outcome.after[task.id], outcome.before[task.id]
            if place is was:
                continue
            if place.status in ("bound", "nominated"):
                yield from _wrong_place(world, job, task, place)
            if place.status == "bound" and was.status not in ("pending", "nominated"):
                yield f"{task.id}: it is {was.status} and bound once more"
            if (place.status == "evicted" or place.is_moved) and was.status != "running":
                yield f"{task.id}: it is to leave, but it is {was.status}"


def _wrong_place(world: World, job: RunJob, task: RunTask, place: Place) -> Iterator[str]:
    ix = world.cluster.free.ix_of(place.node)
    if ix is None:
        yield f"{task.id}: there is no node {place.node}"
        return
    if not world.cluster.free.is_ready[ix]:
        yield f"{task.id}: {place.node} takes no new pods"
    pool = world.cluster.pool_of_node(place.node)
    if pool not in job.pools:
        yield f"{task.id}: {place.node} is in pool {pool or '(none)'}, which the job may not use"
    cards = world.cluster.free.cards
    indices = {card.index for card in place.cards}
    if len(indices) != task.demand.devices or len(indices) != len(place.cards):
        yield f"{task.id}: asks for {task.demand.devices} cards and gets {len(indices)}"
    if any(card >= cards.n_cards[ix] for card in indices):
        yield f"{task.id}: {place.node} has only {cards.n_cards[ix]} cards"
    due = {share.milli for share in card_shares(task.demand, cards.card_mib[ix], (0,))}
    given = {card.milli for card in place.cards}
    if task.demand.devices and given != due:
        yield f"{task.id}: gets {sorted(given)} milli of its cards, asks for {sorted(due)}"


def broken_gangs(world: World, outcome: Outcome) -> Iterator[str]:
    """A gang below a minimum of its tree holds nothing, unless it started so and does not grow."""
    for job in world.jobs.values():
        places = [(task, outcome.after[task.id]) for task in job.tasks]
        later = {task.id for task, place in places if place.has_later}
        starts = {task.id for task, place in places if place.status in ("bound", "running")}
        was = {task.id for task in job.tasks if outcome.before[task.id].has_later}
        if later - was and not _may_run(job, later):
            yield f"{job.spec.name}: {_below(job, later)}"
        elif not later - was and _may_run(job, was) and not _may_run(job, later):
            yield f"{job.spec.name}: {_below(job, later)} of those that stay"
        if any(p.status == "bound" for t, p in places if t.id not in was) and not _may_run(
            job, starts
        ):
            yield f"{job.spec.name}: some start now while others wait, and {_below(job, starts)}"


def _may_run(job: RunJob, ids: set[str]) -> bool:
    groups = (task.view.group for task in job.tasks if task.id in ids)
    return is_satisfied(job.tree, groups)


def _below(job: RunJob, ids: set[str]) -> str:
    if job.tree.children:
        return f"{len(ids)} of its tasks have places, which is below a minimum of its groups"
    return f"{len(ids)} of its tasks have places, below its minimum of {job.tree.min_member}"


def protected_victims(world: World, outcome: Outcome) -> Iterator[str]:
    """Work that is not preemptible stays, but for a gang that was below its minimum too long."""
    for job in world.jobs.values():
        if job.spec.is_preemptible or is_past_grace(world, job):
            continue
        for task in job.tasks:
            place = outcome.after[task.id]
            if place is not outcome.before[task.id] and (
                place.status == "evicted" or place.is_moved
            ):
                yield f"{task.id}: it is not preemptible and has to leave {place.node}"


def broken_budgets(world: World, outcome: Outcome) -> Iterator[str]:
    """No more of a budget's tasks are told to leave or moved than it lets go, but for tasks that
    are told to leave after the budget's deadline."""
    allowed = allowed_now(world)
    overdue = {id_ for id_, task in world.tasks.items() if _is_overdue(world, task)}
    taken = Counter(
        budget
        for id_, _, after in outcome.changed()
        if after.is_moved or (after.status == "evicted" and id_ not in overdue)
        for budget in world.tasks[id_].view.budgets
    )
    for budget, n in taken.items():
        if n > allowed[budget]:
            yield f"budget {budget}: {n} of its tasks have to leave, it lets {allowed[budget]} go"


def _is_overdue(world: World, task: RunTask) -> bool:
    """Whether budgets have held the task back for as long as they may."""
    cluster = world.cluster
    queue = cluster.queue_views.get(world.jobs[task.id.partition("/")[0]].spec.queue)
    pool = cluster.pools.get(cluster.pool_of_node(task.place.node))
    return world.deadlines.is_over(task.view, budget_hold_s(queue, pool), world.now_s)


def is_past_grace(world: World, job: RunJob) -> bool:
    """Whether the job is below its minimum for longer than it may be."""
    since, stale = stale_since(job), job.spec.stale
    if since is None or stale is None or stale.grace is None:
        return False
    return world.now_s - since >= int(stale.grace)


def overfull(world: World, was: Allocations, has: Allocations, moment: str) -> Iterator[str]:
    """No card and no node holds more than it has."""
    for (node, card), milli in has.cards.items():
        if milli > max(MILLI_PER_GPU, was.cards[node, card]):
            yield f"card {node}/{card}: holds {milli} milli of {MILLI_PER_GPU} {moment}"
    free = world.cluster.free
    for (node, resource), amount in has.nodes.items():
        ix = free.ix_of(node)
        if ix is None:
            continue
        limits = {
            CPU: free.free_cpu_milli[ix],
            MEMORY: free.free_memory_mib[ix],
            PODS: free.free_pods[ix],
        }
        most = limits.get(resource, (free.free_counted[ix] or {}).get(resource, 0))
        if amount > max(most, was.nodes[node, resource]):
            yield f"{node}: holds {amount} {resource} of {most} {moment}"


def passed_bounds(world: World, was: Allocations, has: Allocations, moment: str) -> Iterator[str]:
    """No queue passes its limit, nor its quota with what is not preemptible; in any pool."""
    views = world.cluster.queue_views
    for (queue, pool, at), amount in has.queues.items():
        limit = limit_of(world, queue, pool, at)
        if amount > max(limit, was.queues[queue, pool, at]):
            yield (
                f"{queue}: holds {amount} {_RESOURCES[at]} in pool {pool} {moment},"
                f" above its limit of {limit}"
            )
    for (queue, pool, at), amount in has.fixed.items():
        figures = views[queue].pools.get(pool, PoolQuota()).figures[at]
        if at == GPU and figures.quota == 0 and world.cluster.pools[pool].policy != "fairshare":
            # Only a quota that is stated bounds non-preemptible work there.
            continue
        if amount > max(figures.quota, was.fixed[queue, pool, at]):
            yield (
                f"{queue}: holds {amount} {_RESOURCES[at]} in pool {pool} {moment} that are not"
                f" preemptible, above its quota of {figures.quota}"
            )
