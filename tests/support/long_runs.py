"""Many cycles in virtual time: jobs of one pod start, end, are evicted and start again.

Each step decides on a snapshot, evicts and starts pods according to the plan, and advances the
time. Evicted jobs lose all their work and are pending again. Allocations are counted as in the
controller. Every project (or user) always has a few pending jobs.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from extender.policy.decide import decide
from extender.policy.plan import Plan, Settings
from extender.policy.queues.usage import HeldLately, advance, as_ppm
from extender.state.model import NOTHING, Amounts, QueueView
from extender.state.snapshot import Snapshot
from tests.support.snapshots import Cluster

HOUR_S = 3600
#: Pending jobs of each source at any time.
_BACKLOG = 3


@dataclass
class Source:
    """Jobs of one project or user: GPUs of each, and their shortest and longest run time.

    Some are pending at any time; with `is_one_by_one` each is submitted when the previous one ends.
    """

    project: str
    gpus: int = 1
    runs_s: tuple[int, int] = (600, 1200)
    user: str = ""
    is_one_by_one: bool = False
    n_made: int = 0

    @property
    def name(self) -> str:
        """The key of its figures in a run."""
        return self.user or self.project


@dataclass
class Job:
    """A pod; `started_s` is None while it is pending."""

    name: str
    source: Source
    run_s: int
    made_s: int
    waits_since: int
    started_s: int | None = None
    node: str = ""
    cards: tuple[int, ...] = ()


@dataclass
class LongRun:
    """A run on `nodes` (GPUs by node); `projects` adds queues to an empty cluster. Its figures are
    GPU-seconds by source."""

    nodes: dict[str, int]
    projects: Callable[[Cluster], None]
    sources: list[Source]
    half_life_s: int = 0
    step_s: int = 60
    seed: int = 0
    now_s: int = 0
    jobs: dict[str, Job] = field(default_factory=dict)
    held: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    evictions: Counter[str] = field(default_factory=Counter)
    started_s: dict[str, list[int]] = field(default_factory=dict)
    longest_wait_s: Counter[str] = field(default_factory=Counter)
    _lately: HeldLately = field(default_factory=HeldLately)
    _used: dict[tuple[str, str], Amounts] = field(default_factory=dict)
    _random: Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = Random(self.seed)

    def run(self, hours: int) -> "LongRun":
        """Run for this many more hours; returns itself."""
        end_s = self.now_s + hours * HOUR_S
        while self.now_s < end_s:
            self._arrive()
            plan = decide(
                self._snapshot(), Settings(usage_weight_milli=1000 if self.half_life_s else 0)
            )
            self._carry_out(plan)
            self.now_s += self.step_s
            self._count(plan)
            self._end()
        return self

    def _arrive(self) -> None:
        waiting = Counter(job.source.name for job in self.jobs.values() if job.started_s is None)
        here = Counter(job.source.name for job in self.jobs.values())
        for source in self.sources:
            name = source.name
            lacks = 1 - here[name] if source.is_one_by_one else _BACKLOG - waiting[name]
            for _ in range(lacks):
                name = f"{source.name}-{source.n_made}"
                run_s = self._random.randint(*source.runs_s)
                self.jobs[name] = Job(name, source, run_s, self.now_s, self.now_s)
                source.n_made += 1

    def _snapshot(self) -> Snapshot:
        cluster = Cluster()
        for name, gpus in self.nodes.items():
            cluster.node(name, gpus)
        self.projects(cluster)
        for job in self.jobs.values():
            place: dict[str, Any] = {}
            if job.started_s is not None:
                place = {"on": job.node, "cards": job.cards}
            cluster.job(
                job.name,
                job.source.project,
                job.source.gpus,
                user=job.source.user,
                age=self.now_s - job.waits_since,
                ran=self.now_s - (job.started_s or 0),
                **place,
            )
        snapshot = cluster.snapshot()
        snapshot.held_lately = self._lately.averages
        if self.half_life_s and self._used:
            snapshot.queues = {
                name: self._with_past(view) for name, view in snapshot.queues.items()
            }
        return snapshot

    def _with_past(self, view: QueueView) -> QueueView:
        had = self._used["", "default"]
        gpu, _, _ = as_ppm(self._used.get((view.name, "default"), NOTHING), had)
        quota = view.pools["default"]
        return replace(
            view, pools={"default": replace(quota, gpu=replace(quota.gpu, usage_ppm=gpu))}
        )

    def _carry_out(self, plan: Plan) -> None:
        for eviction in plan.evictions:
            job = self.jobs[eviction.workload.removeprefix("ns/")]
            assert job.started_s is not None
            self.evictions[job.source.name] += 1
            self.lost[job.source.name] += job.source.gpus * (self.now_s - job.started_s)
            job.started_s, job.waits_since = None, self.now_s
        for admission in plan.admissions:
            if admission.state != "reserved":
                continue
            job = self.jobs[admission.workload.key.removeprefix("ns/")]
            (placement,) = admission.placements
            job.node, job.started_s = placement.node, self.now_s
            job.cards = tuple(card.index for card in placement.cards)
            wait_s = self.now_s - job.waits_since
            name = job.source.name
            self.started_s.setdefault(name, []).append(self.now_s)
            self.longest_wait_s[name] = max(self.longest_wait_s[name], wait_s)

    def _count(self, plan: Plan) -> None:
        held: dict[tuple[str, str], Amounts] = {}
        for job in self.jobs.values():
            if job.started_s is None:
                continue
            source, milli = job.source, 1000 * job.source.gpus
            self.held[source.name] += source.gpus * self.step_s
            for name in _chain(source):
                before = held.get((name, "default"), NOTHING)
                held[name, "default"] = before[0] + milli, 0, 0
        self._lately.step(held, self.step_s)
        if self.half_life_s:
            held["", "default"] = 1000 * sum(self.nodes.values()), 0, 0
            self._used = {
                key: advance(
                    self._used.get(key, NOTHING),
                    held.get(key, NOTHING),
                    self.step_s,
                    self.half_life_s,
                )
                for key in self._used.keys() | held.keys()
            }

    def _end(self) -> None:
        for job in list(self.jobs.values()):
            if job.started_s is not None and self.now_s - job.started_s >= job.run_s:
                self.done[job.source.name] += job.source.gpus * job.run_s
                self.ended[job.source.name] += 1
                del self.jobs[job.name]

    def parts(self) -> dict[str, float]:
        """The fraction of all held GPU-seconds that each source held."""
        total = sum(self.held.values())
        return {source.name: self.held[source.name] / total for source in self.sources}

    def lost_part(self) -> float:
        """Lost work divided by all work."""
        return sum(self.lost.values()) / max(1, sum(self.done.values()))


def _chain(source: Source) -> Iterable[str]:
    yield "department/everybody"
    yield source.project
    if source.user:
        yield f"{source.project}/user/{source.user}"


def equal_projects(names: Iterable[str], weights: Iterable[int] = ()) -> Callable[[Cluster], None]:
    """Adds projects without quota, of weight 1 or these weights."""
    listed = list(names)
    by_name = dict(zip(listed, weights, strict=True)) if (weights := list(weights)) else {}

    def add(cluster: Cluster) -> None:
        for name in listed:
            cluster.project(name, weight=by_name.get(name, 1))

    return add
