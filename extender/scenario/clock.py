"""Time in a scenario: it passes between steps, and in a long run."""

from collections import Counter

from extender.scenario.world import World, charge


def pass_time(world: World, seconds: int) -> None:
    """Everything stays where it is for so long; what is held is added to the queues' past use."""
    if seconds and world.past.is_counted:
        world.past.add(_held(world), seconds)
    world.now_s += seconds


def _held(world: World) -> "Counter[tuple[str, str, int]]":
    """What every queue holds, by queue, node pool and resource."""
    found: Counter[tuple[str, str, int]] = Counter()
    for job in world.jobs.values():
        for task in job.tasks:
            if task.place.status == "pending":
                continue
            pool = world.cluster.pool_of_node(task.place.node)
            for queue in world.cluster.lineage(job.spec.queue):
                for at, amount in enumerate(charge(task, task.place)):
                    found[queue.name, pool, at] += amount
    return found
