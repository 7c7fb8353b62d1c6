"""What-if simulations: the decision on a changed picture, compared with the actual one."""

from collections.abc import Iterable, Iterator, Mapping, Set

from extender.api.months import PER_GPU_HOUR
from extender.api.units import MILLI_PER_GPU, format_gpus, parse_gpus
from extender.policy.plan import Eviction
from extender.policy.preemption.lost_work import seconds_lost
from extender.state.model import PodView, WorkloadView
from extender.view.answers import AsOf, Change, Job, SimulationSpec, SimulationStatus
from extender.view.figures import all_figures
from extender.view.picture import BadChangeError, Picture, imagined, leaving, waits


def simulate(picture: Picture, spec: SimulationSpec, as_of: AsOf) -> SimulationStatus:
    """How one decision differs with all changes in `spec`. Raises BadChangeError."""
    return compare(picture, apply(picture, spec), spec, as_of)


def compare(
    picture: Picture, changed: Picture, spec: SimulationSpec, as_of: AsOf
) -> SimulationStatus:
    """How the decision on `changed`, which `apply` made from `picture`, differs."""
    changes = list(_changes(picture, changed, spec))
    return SimulationStatus(
        as_of=as_of,
        changes=changes,
        stops=sum(each.what == "stops" for each in changes),
        held_before=format_gpus(_held(picture)),
        held_after=format_gpus(_held(changed)),
        waiting_before=format_gpus(_waiting(picture)),
        waiting_after=format_gpus(_waiting(changed)),
        lost_before=format_hours(_lost(picture)),
        lost_after=format_hours(_lost(changed) + _lost_by_drain(picture, spec)),
        queues=list(all_figures(changed.plan, changed.snapshot)),
    )


def apply(picture: Picture, spec: SimulationSpec, wanted: Iterable[WorkloadView] = ()) -> Picture:
    """The picture with the changes in `spec` and with `wanted` submitted. Raises BadChangeError."""
    pools = picture.snapshot.pools
    quotas, limits = _figures(spec.quotas, pools), _figures(spec.limits, pools)
    budgets = _budgets(spec.budgets, picture)
    jobs = [_job(picture, job, number) for number, job in enumerate(spec.jobs)]
    for added in spec.add_nodes:
        if not 1 <= added.count <= 1000:
            raise BadChangeError(f"{added.count} nodes can't be added: 1 to 1000 can")
        picture = picture.with_nodes(added.like, added.count)
    if spec.drain:
        picture = picture.drained(spec.drain)
    return picture.changed(
        workloads=[*jobs, *wanted], quotas=quotas, limits=limits, budgets=budgets
    )


def _figures(given: Mapping[str, str], pools: Mapping[str, object]) -> dict[tuple[str, str], int]:
    found = {}
    for named, text in given.items():
        queue, slash, pool = named.rpartition("/")
        if not slash or pool not in pools:
            queue, pool = named, "default" if "default" in pools else min(pools, default="")
        try:
            found[queue, pool] = parse_gpus(text)
        except ValueError as error:
            raise BadChangeError(f"{named}: {error}") from None
    return found


def _budgets(given: Mapping[str, int], picture: Picture) -> dict[tuple[str, str], int]:
    """Milli-GPU-seconds by project and node pool. Raises BadChangeError."""
    found = {}
    for named, hours in given.items():
        ((queue, pool),) = _figures({named: "0"}, picture.snapshot.pools)
        view = picture.snapshot.queues.get(queue)
        if view is not None and (pool not in view.pools or view.pools[pool].gpu.month is None):
            raise BadChangeError(
                f"{named} has no gpuHoursPerMonth in node pool {pool}, so its usage of this month"
                " is not known: set a budget above what it can use first"
            )
        if hours < 0:
            raise BadChangeError(f"{named}: {hours} GPU-hours are less than none")
        found[queue, pool] = hours * PER_GPU_HOUR
    return found


def _job(picture: Picture, job: Job, number: int) -> WorkloadView:
    queue = picture.snapshot.queues.get(job.project)
    if queue is None:
        raise BadChangeError(f"there is no project {job.project!r}")
    try:
        milli = parse_gpus(job.gpus)
    except ValueError as error:
        raise BadChangeError(f"gpus: {error}") from None
    if not 1 <= job.pods <= 10_000 or milli < 1:
        raise BadChangeError("a job has 1 to 10000 pods, and each requests part of a GPU or more")
    if milli > MILLI_PER_GPU and milli % MILLI_PER_GPU:
        raise BadChangeError(f"{job.gpus} GPUs for a pod: a part of one GPU, or whole GPUs")
    given = {} if job.priority is None else {"priority": job.priority}
    return imagined(
        f"what-if-{number}",
        job.project,
        job.project,
        milli,
        job.pods,
        min_member=job.pods if job.gang else 1,
        user=job.user,
        created_at=picture.snapshot.now_s,
        pools=tuple(sorted(picture.snapshot.pools)),
        **given,
    )


def _changes(before: Picture, after: Picture, spec: SimulationSpec) -> Iterator[Change]:
    """The differences by workload, evictions first."""
    was, now, lost = fates_of(before), fates_of(after), _lost_by_fate(after)
    drained = set(spec.drain)
    for key in sorted({*was, *now}):
        for what, (pods, milli, message) in sorted(now.get(key, {}).items()):
            n_before, milli_before, _ = was.get(key, {}).get(what, (0, 0, ""))
            if what == "waits" and pods > n_before and _runs_on(before, key, drained):
                n_stopped, stopped_milli = pods - n_before, milli - milli_before
                change = _change("stops", key, after, n_stopped, stopped_milli, message)
            elif n_before != pods:
                change = _change(what, key, after, pods, milli, message)
            else:
                continue
            if (key, change.what) in lost:
                change.lost = format_hours(lost[key, change.what])
            yield change
    for workload in before.snapshot.workloads.values():
        held = [pod for pod in workload.pods if pod.node in drained]
        blocked = [
            pod
            for pod in held
            if any(before.snapshot.budgets.get(name, 1) < 1 for name in pod.budgets)
        ]
        gone = [pod for pod in held if not pod.is_controlled]
        if blocked:
            message = f"its disruption budget {blocked[0].budgets[0]} lets none go"
            milli = sum(pod.held_milli for pod in blocked)
            yield _change("cannot move", workload.key, before, len(blocked), milli, message)
        if gone:
            milli = sum(pod.held_milli for pod in gone)
            change = _change(
                "stops", workload.key, before, len(gone), milli, "nothing makes its pod again"
            )
            change.lost = format_hours(sum(lost_milli_seconds(before, pod) for pod in gone))
            yield change


def _runs_on(picture: Picture, key: str, nodes: Set[str]) -> bool:
    """Whether a pod of the workload is on one of the nodes."""
    workload = picture.snapshot.workloads.get(key)
    return workload is not None and any(pod.node in nodes for pod in workload.pods)


def _change(what: str, key: str, picture: Picture, pods: int, milli: int, message: str) -> Change:
    workload = picture.snapshot.workloads.get(key)
    project = workload.project if workload else ""
    return Change(what, key, project, pods, format_gpus(milli), message)


def _lost_by_fate(picture: Picture) -> dict[tuple[str, str], int]:
    """Milli-GPU-seconds that the plan wastes, by workload and whether it is stopped or moved."""
    found: dict[tuple[str, str], int] = {}
    for each in leaving(picture.plan):
        fate = each.workload, "stops" if isinstance(each, Eviction) else "moves"
        found[fate] = found.get(fate, 0) + lost_milli_seconds(picture, each.pod)
    return found


def lost_milli_seconds(picture: Picture, pod: PodView) -> int:
    """Milli-GPU-seconds of the pod's work that an eviction wastes, including its restart."""
    snapshot = picture.snapshot
    ix = snapshot.nodes.ix_of(pod.node)
    pool = snapshot.pools.get(snapshot.nodes.pool[ix]) if ix is not None else None
    return pod.held_milli * seconds_lost(pod, snapshot.now_s, pool.checkpoint_s if pool else 0)


def format_hours(milli_seconds: int) -> str:
    """GPU-hours with one decimal, rounded up, so that a loss is never shown as 0."""
    tenths = -(-milli_seconds * 10 // (MILLI_PER_GPU * 3600))
    return f"{tenths // 10}.{tenths % 10}" if tenths else "0"


def _lost(picture: Picture) -> int:
    """Milli-GPU-seconds that the plan's evictions and moves waste."""
    return sum(lost_milli_seconds(picture, each.pod) for each in leaving(picture.plan))


def _lost_by_drain(before: Picture, spec: SimulationSpec) -> int:
    """Milli-GPU-seconds that the drain wastes, whether or not the pods are created again."""
    drained = set(spec.drain)
    budgets = before.snapshot.budgets
    return sum(
        lost_milli_seconds(before, pod)
        for workload in before.snapshot.workloads.values()
        for pod in workload.pods
        if pod.node in drained and all(budgets.get(name, 1) > 0 for name in pod.budgets)
    )


def fates_of(picture: Picture) -> dict[str, dict[str, tuple[int, int, str]]]:
    """By workload and outcome: the number of pods, their milli-GPU, and the node or reason."""
    found: dict[str, dict[str, tuple[int, int, str]]] = {}
    plan = picture.plan
    for given in plan.admissions:
        nodes = ", ".join(sorted({placement.node for placement in given.placements})[:4])
        milli = sum(placement.milli for placement in given.placements)
        fate = (len(given.placements), milli, f"on {nodes}")
        found.setdefault(given.workload.key, {})["starts"] = fate
    for eviction in plan.evictions:
        fates = found.setdefault(eviction.workload, {})
        n, milli, _ = fates.get("stops", (0, 0, ""))
        milli += eviction.pod.held_milli
        fates["stops"] = (n + 1, milli, f"for {eviction.beneficiary}")
    for move in plan.moves:
        fates = found.setdefault(move.workload, {})
        n, milli, _ = fates.get("moves", (0, 0, ""))
        to = f"{move.pod.node} -> {move.placement.node}"
        fates["moves"] = (n + 1, milli + move.placement.milli, to)
    for key, refused in plan.waits.items():
        workload = picture.snapshot.workloads.get(key)
        if workload is not None:
            pods = [pod for pod in workload.pods if waits(pod)]
            milli = picture.asked_milli(workload, is_waiting_only=True)
            detail = refused.detail.removeprefix(f"{key}: ")
            message = f"{refused.reason}: {detail}" if detail else refused.reason
            found.setdefault(key, {})["waits"] = (len(pods), milli, message)
    return found


def _held(picture: Picture) -> int:
    """Milli-GPU that are held once the plan is carried out."""
    plan = picture.plan
    held = sum(
        pod.held_milli
        for workload in picture.snapshot.workloads.values()
        for pod in workload.pods
        if pod.node
    )
    given = sum(p.milli for each in plan.admissions for p in each.placements)
    return held + given - sum(eviction.pod.held_milli for eviction in plan.evictions)


def _waiting(picture: Picture) -> int:
    """Milli-GPU that pods still request once the plan is carried out."""
    fates = fates_of(picture)
    return sum(fate["waits"][1] for fate in fates.values() if "waits" in fate)
