"""What is allocated at one moment of a cycle: of every card, every node and every queue."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from extender.scenario.places import Place
from extender.scenario.world import RunJob, RunTask, World, charge
from extender.state.model import GPU, PoolQuota

#: Resources of a node besides its cards, as `Allocations.nodes` names them.
CPU: Final = "milli-CPU"
MEMORY: Final = "memory"
PODS: Final = "pods"


@dataclass(slots=True)
class Allocations:
    """Sums over tasks. `nodes` is keyed by (node, resource), `queues` by (queue, pool, resource
    as its index in `Amounts`); `fixed` is the part of `queues` that is not preemptible."""

    cards: Counter[tuple[str, int]] = field(default_factory=Counter)
    nodes: Counter[tuple[str, str]] = field(default_factory=Counter)
    queues: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    fixed: Counter[tuple[str, str, int]] = field(default_factory=Counter)

    def add(self, world: World, job: RunJob, task: RunTask, place: Place) -> None:
        """Count one task at its place."""
        demand = task.demand
        for card in place.cards:
            self.cards[place.node, card.index] += card.milli
        self.nodes[place.node, CPU] += demand.cpu_milli
        self.nodes[place.node, MEMORY] += demand.memory_mib
        self.nodes[place.node, PODS] += 1
        for name, n in demand.counted:
            self.nodes[place.node, name] += n
        charged = charge(task, place)
        pool = world.cluster.pool_of_node(place.node)
        for queue in world.cluster.lineage(job.spec.queue):
            for at, amount in enumerate(charged):
                self.queues[queue.name, pool, at] += amount
                if not job.spec.is_preemptible:
                    self.fixed[queue.name, pool, at] += amount


def limit_of(world: World, queue: str, pool: str, at: int) -> int:
    """The most that the queue may hold after the cycle. Where its budget of GPU-hours is used, that
    is its quota, or what it held and was promised before the cycle."""
    limit = world.cluster.queue_views[queue].pools.get(pool, PoolQuota()).figures[at].limit
    spent = world.months.spent_quotas(world.cluster) if at == GPU else {}
    if (queue, pool) not in spent:
        return limit
    before = held_later(world, {task.id: task.held for task in world.tasks.values()})
    return min(limit, max(spent[queue, pool], before.queues[queue, pool, at]))


def held_now(world: World, places: Mapping[str, Place]) -> Allocations:
    """What is held in the cycle itself: what leaves is still there, what is promised is not."""
    return _sum_up(world, places, place_now)


def held_later(world: World, places: Mapping[str, Place]) -> Allocations:
    """What is held once all that leave have left."""
    return _sum_up(world, places, lambda place: place if place.has_later else None)


def _sum_up(
    world: World, places: Mapping[str, Place], holds: Callable[[Place], Place | None]
) -> Allocations:
    found = Allocations()
    for job in world.jobs.values():
        for task in job.tasks:
            place = holds(places[task.id])
            if place is not None:
                found.add(world, job, task, place)
    return found


def place_now(place: Place) -> Place | None:
    """Where the task is in the cycle itself, if anywhere."""
    if place.is_moved:
        return Place("evicted", place.from_node, place.from_cards)
    return place if place.has_now else None
