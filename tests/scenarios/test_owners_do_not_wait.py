"""At rest no work waits that is entitled to a place: on random clusters of single pods, a search
over all sets of pods on a node finds none that the work might still take.

Within the quotas of its queues it might take what other queues hold above theirs, and at any time
what is worse in its own project, GPU for GPU.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, combinations
from random import Random
from typing import Any

from extender.scenario.load import case_of
from extender.scenario.run import run_cycle
from extender.scenario.world import RunJob, World

Entry = dict[str, Any]
N_CLUSTERS = 150
_SIZES = (1, 1, 1, 2, 2, 3, 4)


def cluster(seed: int) -> Entry:
    """Up to three nodes, full or nearly so; two departments or none; up to four projects."""
    rng = Random(seed)
    n_nodes = rng.randint(1, 3)
    nodes: list[Entry] = [
        {"name": f"n{ix}", "gpus": rng.choice((2, 4, 8))} for ix in range(n_nodes)
    ]
    above = rng.choice(([], ["d0", "d1"]))
    queues: list[Entry] = [{"name": d, "gpu": {"quota": rng.randint(0, 8)}} for d in above]
    projects = [f"p{ix}" for ix in range(rng.randint(2, 4))]
    for name in projects:
        gpu = {"quota": rng.choice((0, 1, 2, 3, 4, 6)), "weight": rng.randint(0, 3)}
        queues.append({"name": name, "parent": rng.choice(above) if above else None, "gpu": gpu})
    jobs: list[Entry] = []
    for node in nodes:
        free = node["gpus"]
        while free > rng.randint(0, 1):
            task = {"name": "t", "gpu": min(free, rng.choice(_SIZES))}
            free -= task["gpu"]
            jobs.append(_job(rng, f"r{len(jobs)}", projects, task | _runs(node["name"])))
    for _ in range(rng.randint(2, 7)):
        jobs.append(_job(rng, f"w{len(jobs)}", projects, {"name": "t", "gpu": rng.choice(_SIZES)}))
    settings = {"usageWeight": 0}
    about = {"scenario": "v1", "id": f"owners-{seed}", "settings": settings}
    return about | {"nodes": nodes, "queues": queues, "jobs": jobs}


def _runs(node: str) -> Entry:
    return {"state": "running", "node": node}


def _job(rng: Random, name: str, projects: list[str], task: Entry) -> Entry:
    priority = rng.choice((20, 50, 80) if "node" in task else (20, 50, 80, 100))
    ran_s = rng.choice((10, 100, 1000, 5000))
    queue = rng.choice(projects)
    return {
        "name": name,
        "queue": queue,
        "priority": priority,
        "runningFor": ran_s,
        "tasks": [task],
    }


def at_rest(entry: Entry) -> World:
    """The world once nothing changes any more."""
    world = World.of(case_of(entry, "random"))
    for cycle in range(1, 60):
        outcome = run_cycle(world, cycle, lambda: 0)
        if not any(True for _ in outcome.changed()):
            return world
        world.settle(outcome.after)
    raise AssertionError(f"{entry['id']} does not come to rest")


@dataclass
class Resting:
    """What queues hold, and what runs on each node, in a world at rest."""

    world: World
    held: Counter[str] = field(default_factory=Counter)
    held_np: Counter[str] = field(default_factory=Counter)
    on_node: dict[str, list[RunJob]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for job in self.world.jobs.values():
            place = job.tasks[0].place
            if place.status == "running":
                self.on_node.setdefault(place.node, []).append(job)
                self.held.update(dict.fromkeys(self.chain(job), _size(job)))
                if not job.spec.is_preemptible:
                    self.held_np.update(dict.fromkeys(self.chain(job), _size(job)))

    def chain(self, job: RunJob) -> list[str]:
        """The job's queues."""
        return [queue.name for queue in self.world.cluster.lineage(job.spec.queue)]

    def has_quota(self, held: Counter[str], job: RunJob) -> bool:
        """Whether the queues that hold this are within their quotas with the job."""
        return all(held[name] + _size(job) <= self.quota(name) for name in self.chain(job))

    def quota(self, name: str) -> int:
        """GPUs."""
        quota = self.world.cluster.queues[name].gpu.quota
        assert isinstance(quota, int)
        return quota

    def takes(self, job: RunJob) -> Iterator[list[str]]:
        """Sets of pods that the waiting job might take."""
        if not job.spec.is_preemptible and not self.has_quota(self.held_np, job):
            return
        for node in self.world.cluster.case.nodes:
            here = self.on_node.get(node.name, [])
            lacks = _size(job) - (int(node.gpus) - sum(map(_size, here)))
            for some in _sets(each for each in here if each.spec.is_preemptible):
                is_enough = _size(job) <= int(node.gpus) and sum(map(_size, some)) >= lacks
                if is_enough and (self._is_worse(job, some) or self._is_borrowed(job, some)):
                    yield [each.spec.name for each in some]

    def _is_worse(self, job: RunJob, some: tuple[RunJob, ...]) -> bool:
        own = all(
            each.spec.queue == job.spec.queue and each.spec.priority < job.spec.priority
            for each in some
        )
        return own and sum(map(_size, some)) >= _size(job)

    def _is_borrowed(self, job: RunJob, some: tuple[RunJob, ...]) -> bool:
        if not self.has_quota(self.held, job):
            return False
        left, shared = self.held.copy(), self.chain(job)
        for each in some:
            left.subtract(dict.fromkeys(self.chain(each), _size(each)))
        others = {name for each in some for name in self.chain(each) if name not in shared}
        is_of_others = all(each.spec.queue != job.spec.queue for each in some)
        return is_of_others and all(left[name] >= self.quota(name) for name in others)


def _size(job: RunJob) -> int:
    return job.tasks[0].demand.devices


def _sets(jobs: Iterable[RunJob]) -> Iterator[tuple[RunJob, ...]]:
    listed = list(jobs)
    return chain.from_iterable(combinations(listed, n) for n in range(len(listed) + 1))


def test_no_work_waits_that_is_entitled_to_a_place() -> None:
    n_waiting = n_entitled = 0
    for seed in range(N_CLUSTERS):
        entry = cluster(seed)
        start = Resting(World.of(case_of(entry, "random")))
        n_entitled += sum(any(start.takes(job)) for job in _waiting(start.world))
        rest = Resting(at_rest(entry))
        for job in _waiting(rest.world):
            n_waiting += 1
            assert next(rest.takes(job), None) is None, (seed, job.spec.name)
    assert n_entitled > N_CLUSTERS
    assert n_waiting > N_CLUSTERS


def _waiting(world: World) -> list[RunJob]:
    return [job for job in world.jobs.values() if job.tasks[0].place.status == "pending"]
