"""The changing half of a scenario: its jobs, and where each of their tasks is.

A `World` holds a `Place` for every task and settles what a cycle decided. Time stands still in a
run: a round has no length.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from extender.api.demand import Demand
from extender.api.units import UnitError
from extender.scenario.budgets import covering
from extender.scenario.cards import Seated, seat
from extender.scenario.cluster import Cluster
from extender.scenario.constraints import Shared
from extender.scenario.errors import ScenarioError
from extender.scenario.groups import tree_of
from extender.scenario.model import Case, Job, Status, Task
from extender.scenario.places import PENDING, Place
from extender.state.model import GroupView, PodState, PodView

NOW_S = 1_000_000_000
#: Seconds between two jobs that do not say how old they are.
_AGE_STEP_S = 60
_POD_STATES: dict[Status, PodState] = {
    "pending": "gated",
    "bound": "reserved",
    "running": "bound",
    "nominated": "nominated",
    "evicted": "bound",
}


@dataclass(slots=True)
class RunTask:
    """One pod. `id` is `job/task`, with a number behind where the file repeats the task.

    `view` is the pod as it waits; `started_at` is 0 while it does not run. `promise` is the place
    that the last cycle nominated it for: it waits again, but nobody else is given that place.
    """

    id: str
    view: PodView
    place: Place = PENDING
    started_at: int = 0
    promise: Place | None = None

    @property
    def demand(self) -> Demand:
        """What it asks for."""
        return self.view.demand

    @property
    def held(self) -> Place:
        """Its place, or the one that is kept for it."""
        return self.promise or self.place

    def as_pod(self) -> PodView:
        """The pod as it is now."""
        place = self.held
        if place.status == "pending":
            return self.view
        return replace(
            self.view,
            state=_POD_STATES[place.status],
            is_gated=place.status == "nominated",
            is_terminating=place.status == "evicted",
            node=place.node,
            cards=place.cards,
            started_at=self.started_at,
        )


@dataclass(slots=True)
class RunJob:
    """A workload. `age_s` is what the file says or its position in the list."""

    spec: Job
    tree: GroupView
    pools: tuple[str, ...]
    age_s: int
    tasks: list[RunTask] = field(default_factory=list)

    @property
    def key(self) -> str:
        """Key of its workload in a snapshot."""
        return f"{self.spec.namespace}/{self.spec.name}"


@dataclass(slots=True)
class World:
    """All jobs that exist, in the order of the file. A task's id is also the uid of its pod."""

    cluster: Cluster
    jobs: dict[str, RunJob] = field(default_factory=dict)
    tasks: dict[str, RunTask] = field(default_factory=dict)
    shared: Shared = field(init=False)

    def __post_init__(self) -> None:
        self.shared = Shared(self.cluster)

    @classmethod
    def of(cls, case: Case) -> "World":
        """The case as it is at its start; raises ScenarioError where it contradicts itself."""
        world = cls(Cluster.of(case))
        n_jobs = len(case.jobs)
        world._add(case.jobs, [_AGE_STEP_S * (n_jobs - at) for at in range(n_jobs)])
        return world

    def add(self, jobs: list[Job]) -> None:
        """Append jobs, each younger than all before it unless it says how old it is."""
        self._add(jobs, [0] * len(jobs))

    def finish(self, names: Iterable[str]) -> None:
        """Drop jobs with all they hold; raises ScenarioError for one that does not exist."""
        for name in names:
            job = self.jobs.pop(name, None)
            if job is None:
                raise ScenarioError(f"{self.cluster.case.id}: finish: there is no job {name}")
            for task in job.tasks:
                del self.tasks[task.id]

    def places(self) -> dict[str, Place]:
        """Where every task is, by its id."""
        return {task.id: task.place for task in self.tasks.values()}

    def settle(self, after: Mapping[str, Place]) -> None:
        """Take over what a cycle decided: bound runs, nominated and evicted wait again.

        An evicted task of a deleted job is gone; one that was moved is not.
        """
        gone = []
        for job in self.jobs.values():
            for task in job.tasks:
                place = after[task.id]
                task.promise = None
                if place.status == "bound":
                    task.place = Place("running", place.node, place.cards)
                    task.started_at = NOW_S
                elif place.status == "evicted" and job.spec.deleted:
                    gone.append(task)
                elif place.status in ("nominated", "evicted"):
                    task.place, task.started_at = PENDING, 0
                    if place.status == "nominated":
                        task.promise = Place("nominated", place.node, place.cards)
            if gone:
                job.tasks = [task for task in job.tasks if task not in gone]
                for task in gone:
                    del self.tasks[task.id]
                gone = []

    def created_at(self) -> dict[str, int]:
        """Unix seconds at which each job was made, by its name: no two the same.

        Jobs of equal age are told apart by their order, the first a second older than the next.
        """
        jobs = list(self.jobs.values())
        order = sorted(range(len(jobs)), key=lambda at: (jobs[at].age_s, -at))
        found, youngest = {}, NOW_S + 1
        for at in order:
            youngest = min(NOW_S - jobs[at].age_s, youngest - 1)
            found[jobs[at].spec.name] = youngest
        return found

    def _add(self, jobs: list[Job], ages: list[int]) -> None:
        held = list(self.places().values())
        seats: list[Seated] = []
        for job, age in zip(jobs, ages, strict=True):
            if job.name in self.jobs:
                raise ScenarioError(f"{self.cluster.case.id}: two jobs are named {job.name}")
            made = self._read(job, age, seats)
            self.jobs[job.name] = made
            self.tasks.update((task.id, task) for task in made.tasks)
        if not seats:
            return
        seat(self.cluster, held, seats)
        for each in seats:
            task = self.tasks[each.id]
            task.place = each.place
            if each.state == "running":
                task.started_at = NOW_S - each.running_s

    def _read(self, job: Job, age: int, seats: list[Seated]) -> RunJob:
        where = f"{self.cluster.case.id}: {job.name}"
        for pool in job.node_pools:
            if pool not in self.cluster.pools:
                raise ScenarioError(f"{where}: there is no node pool {pool}")
        tree = tree_of(job, where)
        made = RunJob(
            spec=job,
            tree=tree,
            pools=self.cluster.pools_of(job.node_pools, job.queue),
            age_s=age if job.age is None else int(job.age),
        )
        for task in job.tasks:
            try:
                demand = self.shared.demand_of(task)
            except UnitError as error:
                raise ScenarioError(f"{where}/{task.name}: {error}") from error
            constraints = self.shared.constraints_of(job, task)
            budgets = covering(self.cluster.case, job)
            for name in task_names(task):
                id_ = f"{job.name}/{name}"
                view = PodView(
                    uid=id_,
                    namespace=job.namespace,
                    name=id_,
                    group=task.group if tree.children else "",
                    order=task.order,
                    demand=demand,
                    priority=job.priority,
                    created_at=NOW_S - made.age_s,
                    constraints=constraints,
                    budgets=budgets,
                )
                made.tasks.append(RunTask(id_, view))
                if task.state != "pending":
                    seats.append(Seated(id_, task, demand, int(job.running_for)))
        if len({task.id for task in made.tasks}) < len(made.tasks):
            raise ScenarioError(f"{where}: two of its tasks have the same name")
        return made


def task_names(task: Task) -> Iterator[str]:
    """The name of the task, or of each of its pods where it is repeated."""
    if task.n == 1:
        yield task.name
    else:
        for at in range(task.n):
            yield f"{task.name}-{at}"
