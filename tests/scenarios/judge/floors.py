"""Replicas that a floor keeps are not evicted or moved; worked out apart from the policy."""

from collections import Counter
from collections.abc import Iterable, Iterator

from extender.scenario.outcome import Outcome
from extender.scenario.world import RunJob, World, charge
from extender.state.model import GPU, PoolQuota

#: (queue, node pool, resource as its index in `Amounts`)
_Held = Counter[tuple[str, str, int]]


def taken_from_floors(world: World, outcome: Outcome) -> Iterator[str]:
    """One sentence for each task of a kept replica that has to leave."""
    for job in _kept(world):
        for task in job.tasks:
            place = outcome.after[task.id]
            is_new = place is not outcome.before[task.id]
            if is_new and (place.status == "evicted" or place.is_moved):
                yield f"{task.id}: the floor of {job.spec.replica_of} keeps it on {place.node}"


def _kept(world: World) -> list[RunJob]:
    """Of each owner so many of the replicas that have run longest as its youngest one states, as
    far as quotas hold them beside all work that is not preemptible."""
    fixed: _Held = Counter()
    for job in world.jobs.values():
        if not job.spec.is_preemptible:
            fixed.update(_held(world, job, with_waiting=False))
    replicas = [job for job in world.jobs.values() if job.spec.replica]
    running = [job for job in replicas if _starts(job)]
    made = world.created_at()
    left = _floors(replicas, made)
    kept = []
    for job in sorted(running, key=lambda job: (min(_starts(job)), made[job.spec.name])):
        owner, more = (
            (job.spec.namespace, job.spec.replica_of),
            _held(world, job, with_waiting=True),
        )
        if left[owner] and job.spec.is_preemptible and _is_within_quotas(world, fixed + more, more):
            left[owner] -= 1
            fixed.update(more)
            kept.append(job)
    return kept


def _floors(jobs: Iterable[RunJob], made: dict[str, int]) -> Counter[tuple[str, str]]:
    by_age = sorted((job.spec for job in jobs), key=lambda spec: (made[spec.name], spec.floor))
    return Counter({(spec.namespace, spec.replica_of): spec.floor for spec in by_age})


def _starts(job: RunJob) -> list[int]:
    return [task.started_at for task in job.tasks if task.place.status in ("bound", "running")]


def _longest(job: RunJob) -> str:
    """The node of the task that has run longest; empty where none runs."""
    live = [task for task in job.tasks if task.place.status in ("bound", "running")]
    return min(((task.started_at, task.id, task.place.node) for task in live), default=("",))[-1]


def _held(world: World, job: RunJob, *, with_waiting: bool) -> _Held:
    """What the job is charged on every level, without places that are being left; tasks without a
    place, if asked for, as they will be charged in the pool of the one that has run longest."""
    found: _Held = Counter()
    longest = _longest(job)
    for task in job.tasks:
        place = task.held
        if place.status == "evicted" or not (place.node or (with_waiting and longest)):
            continue
        pool = world.cluster.pool_of_node(place.node or longest)
        amounts = charge(task, place)
        if not place.node:
            amounts = (task.demand.total_milli + task.demand.counted_milli, *amounts[1:])
        for queue in world.cluster.lineage(job.spec.queue):
            for at, amount in enumerate(amounts):
                found[queue.name, pool, at] += amount
    return found


def _is_within_quotas(world: World, held: _Held, more: _Held) -> bool:
    for (queue, pool, at), amount in held.items():
        figures = world.cluster.queue_views[queue].pools.get(pool, PoolQuota()).figures[at]
        is_bound = at != GPU or figures.quota or world.cluster.pools[pool].policy == "fairshare"
        if more[queue, pool, at] and is_bound and amount > figures.quota:
            return False
    return True
