"""Time in a scenario, which passes between steps and in a long run."""

from collections import Counter

from extender.policy.queues.queue import RESOURCES
from extender.scenario.world import World, charge
from extender.state.model import Amounts, user_queue


def pass_time(world: World, seconds: int) -> None:
    """Let `seconds` pass without a change; allocations are added to the queues' past use."""
    held = _held(world)
    world.months.add(held, seconds)
    if seconds and world.past.is_counted:
        world.past.add(held, seconds)
    amounts: dict[tuple[str, str], Amounts] = {}
    for queue, pool, _ in held:
        gpu, cpu, memory = (held[queue, pool, resource] for resource in RESOURCES)
        amounts[queue, pool] = gpu, cpu, memory
    # Even in a step without time, it counts which queues held something.
    world.lately.step(amounts, max(1, seconds))
    world.now_s += seconds


def _held(world: World) -> "Counter[tuple[str, str, int]]":
    """The allocation of every queue, by queue, node pool and resource; nominations hold nothing
    yet."""
    found: Counter[tuple[str, str, int]] = Counter()
    for job in world.jobs.values():
        for task in job.tasks:
            if task.place.status in ("pending", "nominated"):
                continue
            pool = world.cluster.pool_of_node(task.place.node)
            names = [queue.name for queue in world.cluster.lineage(job.spec.queue)]
            for name in (*names, user_queue(job.spec.queue, job.spec.user)):
                for at, amount in enumerate(charge(task, task.place)):
                    found[name, pool, at] += amount
    return found
