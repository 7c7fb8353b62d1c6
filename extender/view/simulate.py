"""What-if simulations: the decision on a changed picture, compared with the actual one."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace as replaced

from extender.api.months import PER_GPU_HOUR
from extender.api.units import MILLI_PER_GPU, format_gpus, parse_gpus
from extender.policy.plan import Eviction, Move, Placement
from extender.policy.preemption.lost_work import seconds_lost
from extender.state.model import PodView, WorkloadView, department_of, department_queue
from extender.view.answers import AsOf, Change, Job, SimulationSpec, SimulationStatus
from extender.view.figures import all_figures
from extender.view.picture import (
    BadChangeError,
    Picture,
    imagined,
    keeper_of,
    leaving,
    those,
    waits,
)

#: Outcomes of a pod that leaves its node; where fewer pods do, the workload `stays`.
_LEAVES: Final = ("stops", "moves")


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
        lost_after=format_hours(_lost(changed) + _lost_on(picture, spec.drain)),
        queues=list(all_figures(changed.plan, changed.snapshot)),
    )


def apply(picture: Picture, spec: SimulationSpec, wanted: Iterable[WorkloadView] = ()) -> Picture:
    """The picture with the changes in `spec` and with `wanted` submitted. Raises BadChangeError."""
    quotas, limits = _figures(spec.quotas, picture), _figures(spec.limits, picture)
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


def _figures(given: Mapping[str, str], picture: Picture) -> dict[tuple[str, str], int]:
    found = {}
    for named, text in given.items():
        place = _place(named, picture)
        try:
            found[place] = parse_gpus(text)
        except ValueError as error:
            raise BadChangeError(f"{named}: {error}") from None
    return found


def _place(named: str, picture: Picture) -> tuple[str, str]:
    """The queue and node pool of NAME or NAME/NODEPOOL. NAME is a project, else a department.
    Raises BadChangeError."""
    pools, queues = picture.snapshot.pools, picture.snapshot.queues
    usual = "default" if "default" in pools else min(pools, default="")
    first, _, last = named.rpartition("/")
    for name, pool in ((named, usual), (first, last)):
        for queue in (name, department_queue(name)):
            if queue in queues and pool != usual and pool not in pools:
                raise BadChangeError(f"{named}: there is no node pool {pool!r}{those(pools)}")
            if queue in queues:
                return queue, pool
    raise BadChangeError(
        f"there is no project or department {named!r}{those(department_of(q) or q for q in queues)}"
    )


def _budgets(given: Mapping[str, int], picture: Picture) -> dict[tuple[str, str], int]:
    """Milli-GPU-seconds by project and node pool. Raises BadChangeError."""
    found = {}
    for named, hours in given.items():
        queue, pool = _place(named, picture)
        view = picture.snapshot.queues[queue]
        if pool not in view.pools or view.pools[pool].gpu.month is None:
            raise BadChangeError(
                f"{named} has no gpuHoursPerMonth in node pool {pool}, so its usage of this month"
                " is not known: set one that it cannot use up, and ask again"
            )
        if hours < 0:
            raise BadChangeError(f"{named}: {hours} GPU-hours are below 0")
        found[queue, pool] = hours * PER_GPU_HOUR
    return found


def _job(picture: Picture, job: Job, number: int) -> WorkloadView:
    queue = picture.snapshot.queues.get(job.project)
    if queue is None:
        projects = [name for name, each in picture.snapshot.queues.items() if each.parent]
        raise BadChangeError(f"there is no project {job.project!r}{those(projects)}")
    try:
        milli = parse_gpus(job.gpus)
    except ValueError as error:
        raise BadChangeError(f"gpus: {error}") from None
    if not 1 <= job.pods <= 10_000 or milli < 1:
        raise BadChangeError("a job has 1 to 10000 pods, and each requests part of a GPU or more")
    if milli > MILLI_PER_GPU and milli % MILLI_PER_GPU:
        raise BadChangeError(
            f"{job.gpus} GPUs for a pod: give part of one GPU, such as 0.5, or whole GPUs, such as"
            " 2"
        )
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
    """The differences by workload, first those that stay."""
    drained = set(spec.drain)
    left = {
        pod.uid: pod
        for workload in before.snapshot.workloads.values()
        for pod in workload.pods
        if pod.node in drained
    }
    yield from _spared(before, after, drained)
    was, now = fates_of(before), fates_of(after, left)
    lost = _lost_by_fate(after) + _lost_by_drain(before, after, drained)
    for key in sorted({*was, *now}):
        for what, (pods, milli, message) in sorted(now.get(key, {}).items()):
            n_before, milli_before, _ = was.get(key, {}).get(what, (0, 0, ""))
            if what == "waits" and pods > n_before and _runs_on(before, key, drained):
                n_stopped, stopped_milli = pods - n_before, milli - milli_before
                change = _change("stops", key, after, n_stopped, stopped_milli, message)
            elif n_before < pods or (n_before > pods and what not in _LEAVES):
                change = _change(what, key, after, pods, milli, message)
            else:
                continue
            if (key, change.what) in lost:
                change.lost = format_hours(lost[key, change.what])
            yield change
    for workload in before.snapshot.workloads.values():
        held = [pod for pod in workload.pods if pod.node in drained]
        blocked = [pod for pod in held if keeper_of(before.snapshot, pod)]
        gone = [pod for pod in held if not pod.is_controlled and pod not in blocked]
        if blocked:
            keeper = keeper_of(before.snapshot, blocked[0])
            message = f"its disruption budget {keeper} allows no eviction"
            milli = sum(pod.held_milli for pod in blocked)
            yield _change("cannot move", workload.key, before, len(blocked), milli, message)
        if gone:
            milli = sum(pod.held_milli for pod in gone)
            change = _change(
                "stops",
                workload.key,
                before,
                len(gone),
                milli,
                "no controller creates its pod again",
            )
            change.lost = format_hours(sum(lost_milli_seconds(before, pod) for pod in gone))
            yield change


def _spared(before: Picture, after: Picture, drained: Set[str]) -> Iterator[Change]:
    """Workloads of which fewer pods are evicted or moved with the change than without it."""
    leaves = {each.pod.uid for each in leaving(after.plan)}
    n_left = Counter(each.workload for each in leaving(after.plan))
    left = defaultdict[str, list[Eviction | Move]](list)
    for each in leaving(before.plan):
        if each.pod.node not in drained:
            left[each.workload].append(each)
    for key in sorted(left):
        n_spared = len(left[key]) - n_left[key]
        spared = [each for each in left[key] if each.pod.uid not in leaves][: max(n_spared, 0)]
        if spared:
            milli = sum(each.pod.held_milli for each in spared)
            yield _change("stays", key, after, len(spared), milli, _without(spared[0]))


def _without(leave: Eviction | Move) -> str:
    """What happens to the pod without the change."""
    if isinstance(leave, Move):
        return f"moves without the change, to {leave.placement.node}"
    return f"stops without the change, for {leave.beneficiary}"


def _runs_on(picture: Picture, key: str, nodes: Set[str]) -> bool:
    """Whether a pod of the workload is on one of the nodes."""
    workload = picture.snapshot.workloads.get(key)
    return workload is not None and any(pod.node in nodes for pod in workload.pods)


def _change(what: str, key: str, picture: Picture, pods: int, milli: int, message: str) -> Change:
    workload = picture.snapshot.workloads.get(key)
    project = workload.project if workload else ""
    return Change(what, key, project, pods, format_gpus(milli), message)


def _lost_by_fate(picture: Picture) -> Counter[tuple[str, str]]:
    """Milli-GPU-seconds that the plan wastes, by workload and whether it is stopped or moved."""
    found = Counter[tuple[str, str]]()
    for each in leaving(picture.plan):
        fate = each.workload, "stops" if isinstance(each, Eviction) else "moves"
        found[fate] += lost_milli_seconds(picture, each.pod)
    return found


def _lost_by_drain(before: Picture, after: Picture, drained: Set[str]) -> Counter[tuple[str, str]]:
    """The same that the drain wastes of pods that are created again."""
    placed = after.plan.placed_uids()
    found = Counter[tuple[str, str]]()
    for key, workload in before.snapshot.workloads.items():
        for pod in workload.pods:
            if pod.node in drained and pod.is_controlled and not keeper_of(before.snapshot, pod):
                fate = key, "moves" if pod.uid in placed else "stops"
                found[fate] += lost_milli_seconds(before, pod)
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


def _lost_on(before: Picture, drained: Collection[str]) -> int:
    """Milli-GPU-seconds that the drain wastes, whether or not the pods are created again."""
    return sum(
        lost_milli_seconds(before, pod)
        for workload in before.snapshot.workloads.values()
        for pod in workload.pods
        if pod.node in drained and not keeper_of(before.snapshot, pod)
    )


def fates_of(
    picture: Picture, left: Mapping[str, PodView] = MappingProxyType({})
) -> dict[str, dict[str, tuple[int, int, str]]]:
    """By workload and outcome: the number of pods, their milli-GPU, and the node or reason.

    `left` are pods as they were on drained nodes, by UID: they move, and do not start.
    """
    found: dict[str, dict[str, tuple[int, int, str]]] = {}
    plan = picture.plan
    for given in plan.admissions:
        started = [each for each in given.placements if each.pod.uid not in left]
        moved = [each for each in given.placements if each.pod.uid in left]
        fates = found.setdefault(given.workload.key, {})
        if started:
            fates["starts"] = _placed(started, "on ")
        if moved:
            sources = {left[each.pod.uid].node for each in moved}
            fates["moves"] = _placed(moved, f"{', '.join(sorted(sources))} -> ")
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
    placed = plan.placed_uids()
    for key, refused in plan.waits.items():
        workload = picture.snapshot.workloads.get(key)
        if workload is not None:
            pods = tuple(pod for pod in workload.pods if waits(pod) and pod.uid not in placed)
            milli = picture.asked_milli(replaced(workload, pods=pods))
            detail = refused.detail.removeprefix(f"{key}: ")
            message = f"{refused.reason}: {detail}" if detail else refused.reason
            found.setdefault(key, {})["waits"] = (len(pods), milli, message)
    return found


def _placed(placements: Sequence[Placement], before: str) -> tuple[int, int, str]:
    """The number of pods, their milli-GPU, and the first of their nodes."""
    nodes = ", ".join(sorted({placement.node for placement in placements})[:4])
    return len(placements), sum(each.milli for each in placements), f"{before}{nodes}"


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
