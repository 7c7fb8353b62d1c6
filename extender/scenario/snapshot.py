"""Takes a snapshot of a scenario, the input of a cycle."""

from dataclasses import replace

from extender.api.names import NEVER_PREEMPTS
from extender.policy.plan import Settings
from extender.scenario import amounts
from extender.scenario.budgets import allowed, covers, key_of
from extender.scenario.groups import is_plain
from extender.scenario.model.case import Case
from extender.scenario.world import RunJob, World
from extender.state.model import WorkloadView
from extender.state.nodes import NodeTable
from extender.state.snapshot import Snapshot
from extender.state.trees import is_satisfied


def take_snapshot(world: World, *, is_reversed: bool = False) -> Snapshot:
    """The current world; `is_reversed` lists everything without an order in reverse."""
    created = world.created_at()
    jobs = [job for job in world.jobs.values() if job.tasks]
    if is_reversed:
        jobs.reverse()
        table = world.cluster.make_table(is_reversed=True)
    else:
        table = world.cluster.free.copy()
    views = (view_of(job, created[job.spec.name], is_reversed=is_reversed) for job in jobs)
    _hold(world, table)
    queues = world.months.views(world.past.views(world.cluster.queue_views), world.now_s)
    pools = world.cluster.pools
    return Snapshot(
        now_s=world.now_s,
        nodes=table,
        pools=dict(reversed(pools.items())) if is_reversed else pools,
        queues=dict(reversed(queues.items())) if is_reversed else queues,
        workloads={view.key: view for view in views},
        topologies=world.cluster.topologies,
        budgets=allowed_now(world),
        held_lately=world.lately.averages,
    )


def allowed_now(world: World) -> dict[str, int]:
    """How many more disruptions each budget allows."""
    found = {}
    for budget in world.cluster.case.budgets:
        jobs = (job for job in world.jobs.values() if covers(budget, job.spec))
        covered = [task.place.status for job in jobs for task in job.tasks]
        found[key_of(budget)] = allowed(budget, covered)
    return found


def settings_now(world: World) -> Settings:
    """The settings of a cycle now: the case's, and since when budgets delay evictions."""
    return replace(settings_of(world.cluster.case), held_since=world.deadlines.since())


def settings_of(case: Case) -> Settings:
    """The case's settings for a cycle."""
    given = case.settings
    return Settings(
        stages=tuple(given.stages),
        max_moves=given.max_consolidation_victims,
        moves_reclaimed=given.reclaim_moves_victims,
        usage_weight_milli=round(amounts.fraction(given.usage_weight) * 1000),
    )


def view_of(job: RunJob, created_at: int, *, is_reversed: bool = False) -> WorkloadView:
    """The job as a workload, with its current pods."""
    spec = job.spec
    pods = tuple(task.as_pod() for task in job.tasks)
    return WorkloadView(
        key=job.key,
        namespace=spec.namespace,
        name=spec.name,
        is_group=len(pods) > 1 or bool(job.tree.children),
        project=spec.queue,
        kind=spec.kind,
        priority=spec.priority,
        is_preemptible=spec.is_preemptible,
        min_member=job.tree.min_member,
        pools=job.pools,
        created_at=created_at,
        pods=pods[::-1] if is_reversed else pods,
        max_concurrent_pods=spec.max_concurrent_pods,
        weight=spec.weight,
        replica=spec.replica,
        expected_run_s=None if spec.expected_run is None else int(spec.expected_run),
        user=spec.user,
        tree=None if is_plain(job.tree) else job.tree,
        preemption_delay_s=int(spec.preemption_delay),
        never_preempts=spec.preemption_policy == NEVER_PREEMPTS,
        waits_since=job.waits_since,
        stale_since=stale_since(job),
        stale_grace_s=_grace_of(job),
    )


def stale_since(job: RunJob) -> int | None:
    """When the job fell below its minimum, by its file; None if it is not below."""
    held = [task for task in job.tasks if task.place.status in ("running", "bound")]
    if job.spec.stale is None or not held:
        return None
    if is_satisfied(job.tree, (task.view.group for task in held)):
        return None
    return job.came_s - int(job.spec.stale.for_)


def _grace_of(job: RunJob) -> int | None:
    stale = job.spec.stale
    return None if stale is None or stale.grace is None else int(stale.grace)


def _hold(world: World, table: NodeTable) -> None:
    """Take the cards that tasks hold or are nominated for from the table."""
    for task in world.tasks.values():
        place = task.held
        if place.node:
            table.hold(table.cards.ix[place.node], task.demand, place.cards)
