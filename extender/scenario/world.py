"""The changing part of a scenario: its jobs, and the place of each task.

A `World` holds a `Place` for every task and settles what a cycle decided. Rounds take no time; time
passes between steps, and in a simulation.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from extender.api.demand import Demand
from extender.api.units import UnitError
from extender.policy.queues.usage import HeldLately
from extender.policy.workloads.budget_deadlines import Deadlines
from extender.scenario.budgets import covering
from extender.scenario.cards import Seated, seat
from extender.scenario.cluster import Cluster
from extender.scenario.constraints import Shared
from extender.scenario.errors import ScenarioError
from extender.scenario.groups import tree_of
from extender.scenario.model.case import Case
from extender.scenario.model.jobs import Change, Job, Task
from extender.scenario.model.values import Status
from extender.scenario.months import MonthAccounts
from extender.scenario.past_use import UsageAccounts
from extender.scenario.places import PENDING, Place
from extender.state.model import Amounts, GroupView, PodState, PodView

NOW_S = 1_000_000_000
#: Difference in age, in seconds, between two jobs without a stated age.
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
    """One pod. `id` is `job/task`, with a number appended if the file repeats the task.

    `view` is the pending pod; `started_at` is 0 while it does not run, `waits_since` is when it was
    created. `promise` is the place for which the last cycle nominated it: the pod is pending again,
    and its place is kept.
    """

    id: str
    view: PodView
    waits_since: int = 0
    place: Place = PENDING
    started_at: int = 0
    promise: Place | None = None

    @property
    def demand(self) -> Demand:
        """Its request."""
        return self.view.demand

    @property
    def held(self) -> Place:
        """Its place, or the one for which it is nominated."""
        return self.promise or self.place

    def as_pod(self) -> PodView:
        """The pod in its current state."""
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
    """A workload. Unix seconds: it was created at `made_s`, by its stated age or its position in
    the list, and it is in the world since `came_s`."""

    spec: Job
    tree: GroupView
    pools: tuple[str, ...]
    made_s: int
    came_s: int = NOW_S
    tasks: list[RunTask] = field(default_factory=list)

    @property
    def key(self) -> str:
        """The key of its workload in a snapshot."""
        return f"{self.spec.namespace}/{self.spec.name}"

    @property
    def waits_since(self) -> int:
        """When its oldest pending pod was created; without one, when the job was."""
        waiting = (task.waits_since for task in self.tasks if task.place.status == "pending")
        return min(waiting, default=self.made_s)


@dataclass(slots=True)
class World:
    """All existing jobs, in the order of the file. A task's id is also the uid of its pod."""

    cluster: Cluster
    jobs: dict[str, RunJob] = field(default_factory=dict)
    tasks: dict[str, RunTask] = field(default_factory=dict)
    now_s: int = NOW_S
    _part_ms: int = 0
    shared: Shared = field(init=False)
    past: UsageAccounts = field(init=False)
    months: MonthAccounts = field(init=False)
    deadlines: Deadlines = field(default_factory=Deadlines)
    lately: HeldLately = field(default_factory=HeldLately)

    def __post_init__(self) -> None:
        self.shared = Shared(self.cluster)
        self.past = UsageAccounts.of(self.cluster)
        self.months = MonthAccounts.of(self.cluster)

    @classmethod
    def of(cls, case: Case) -> "World":
        """The case's initial world; raises ScenarioError if it contradicts itself."""
        world = cls(Cluster.of(case))
        n_jobs = len(case.jobs)
        world._add(case.jobs, [_AGE_STEP_S * (n_jobs - at) for at in range(n_jobs)])
        return world

    def add(self, jobs: list[Job]) -> None:
        """Append jobs, each younger than all before it unless its age is stated."""
        self._add(jobs, [0] * len(jobs))

    def whole_seconds(self, seconds: float) -> int:
        """The whole seconds of `seconds` and the remainder of earlier calls, to the millisecond."""
        self._part_ms += round(seconds * 1000)
        whole, self._part_ms = divmod(self._part_ms, 1000)
        return whole

    def finish(self, names: Iterable[str]) -> None:
        """Remove jobs with all they hold; raises ScenarioError for one that does not exist."""
        for name in names:
            job = self.jobs.pop(name, None)
            if job is None:
                raise ScenarioError(f"{self.cluster.case.id}: finish: there is no job {name}")
            for task in job.tasks:
                del self.tasks[task.id]

    def change(self, name: str, change: Change) -> None:
        """Change fields of a job; raises ScenarioError if it does not exist."""
        job = self.jobs.get(name)
        if job is None:
            raise ScenarioError(f"{self.cluster.case.id}: set: there is no job {name}")
        job.spec = change.of(job.spec)
        job.pools = self._pools_of(job.spec)
        fresh = {task.id: task.view for task in self._tasks_of(job)}
        for task in job.tasks:
            task.view = fresh[task.id]

    def drop_task(self, id_: str) -> None:
        """Remove a finished task, and its job if it was the last one."""
        name, _, _ = id_.partition("/")
        task, job = self.tasks.pop(id_), self.jobs[name]
        job.tasks.remove(task)
        if not job.tasks:
            del self.jobs[name]

    def places(self) -> dict[str, Place]:
        """The place of every task, by its id."""
        return {task.id: task.place for task in self.tasks.values()}

    def settle(self, after: Mapping[str, Place]) -> None:
        """Apply a cycle's decision: bound tasks run, nominated and evicted ones are pending again.

        An evicted task of a deleted job is removed; a moved one is not. Victims are created again,
        and are pending from now on.
        """
        gone = []
        for job in self.jobs.values():
            for task in job.tasks:
                place = after[task.id]
                task.promise = None
                if place.status == "bound":
                    task.place = Place("running", place.node, place.cards)
                    task.started_at = self.now_s
                elif place.status == "evicted" and job.spec.deleted:
                    gone.append(task)
                elif place.status in ("nominated", "evicted"):
                    if place.status == "evicted" or place.is_moved:
                        task.waits_since = self.now_s
                    task.place, task.started_at = PENDING, 0
                    if place.status == "nominated":
                        task.promise = Place("nominated", place.node, place.cards)
            if gone:
                job.tasks = [task for task in job.tasks if task not in gone]
                for task in gone:
                    del self.tasks[task.id]
                gone = []

    def created_at(self) -> dict[str, int]:
        """Unix seconds at which each job was created, by its name; all distinct.

        Jobs of equal age are ordered by position, each one second older than the next.
        """
        jobs = list(self.jobs.values())
        order = sorted(range(len(jobs)), key=lambda at: (-jobs[at].made_s, -at))
        found, youngest = {}, self.now_s + 1
        for at in order:
            youngest = min(jobs[at].made_s, youngest - 1)
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
                task.started_at = self.now_s - each.running_s

    def _read(self, job: Job, age: int, seats: list[Seated]) -> RunJob:
        where = f"{self.cluster.case.id}: {job.name}"
        made = RunJob(
            spec=job,
            tree=tree_of(job, where),
            pools=self._pools_of(job),
            made_s=self.now_s - (age if job.age is None else int(job.age)),
            came_s=self.now_s,
        )
        made.tasks = list(self._tasks_of(made))
        if len({task.id for task in made.tasks}) < len(made.tasks):
            raise ScenarioError(f"{where}: two of its tasks have the same name")
        view_of = {task.id: task.view for task in made.tasks}
        for task in job.tasks:
            if task.state != "pending":
                ids = [f"{job.name}/{name}" for name in task_names(task)]
                seats += (
                    Seated(id_, task, view_of[id_].demand, int(job.running_for)) for id_ in ids
                )
        return made

    def _pools_of(self, job: Job) -> tuple[str, ...]:
        for pool in job.node_pools:
            if pool not in self.cluster.pools:
                where = f"{self.cluster.case.id}: {job.name}"
                why = f"there is no node pool {pool}; there are: {', '.join(self.cluster.pools)}"
                raise ScenarioError(f"{where}: {why}")
        return self.cluster.pools_of(job.node_pools, job.queue)

    def _tasks_of(self, made: RunJob) -> Iterator[RunTask]:
        """The job's pending pods; raises ScenarioError."""
        job = made.spec
        where = f"{self.cluster.case.id}: {job.name}"
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
                    group=task.group,
                    order=task.order,
                    demand=demand,
                    priority=job.priority,
                    created_at=made.made_s,
                    checkpoint_s=None if job.checkpoint is None else int(job.checkpoint),
                    constraints=constraints,
                    budgets=budgets,
                )
                yield RunTask(id_, view, waits_since=made.made_s)


def charge(task: RunTask, place: Place) -> Amounts:
    """The amounts charged to a queue for the task at this place."""
    milli = sum(card.milli for card in place.cards) + task.demand.counted_milli
    return milli, task.demand.cpu_milli, task.demand.memory_mib


def task_names(task: Task) -> Iterator[str]:
    """The name of the task, or of each of its pods if it is repeated."""
    if task.n == 1:
        yield task.name
    else:
        for at in range(task.n):
            yield f"{task.name}-{at}"
