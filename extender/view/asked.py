"""Answers about workloads that were not submitted: which start, at what cost, and when. Pure.

The answer comes from one decision with all of them submitted and, for a workload that stays pending
although run times are stated, from a run ahead.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct, field

from extender.api.objects import PodSpec
from extender.api.units import format_gpus
from extender.policy.placement.explain import NEVER
from extender.policy.plan import Plan
from extender.state.model import GPU, WorkloadView
from extender.state.snapshot import Snapshot
from extender.state.workloads.imagined import PodSet, Wanted
from extender.view.ahead import Ahead
from extender.view.answers import (
    AsOf,
    Prospect,
    Prospects,
    SimulationSpec,
    SimulationStatus,
    WantedPods,
)
from extender.view.forecast import MOST_WORKLOADS, Foresight, Outlook
from extender.view.line import NOT_IN_LINE
from extender.view.picture import BadChangeError, Picture, admission_of, queues_of, starts
from extender.view.simulate import apply, compare

#: As many as a `Job` of a simulation may have.
MOST_PODS: Final = 10_000
MOST_WANTED: Final = 100

Imagine = Callable[[Wanted], WorkloadView | None]


class _Metadata(Struct):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Template(Struct):
    """The fields of a pod template that are read."""

    metadata: _Metadata = field(default_factory=_Metadata)
    spec: PodSpec = field(default_factory=PodSpec)


def wanted_of(
    spec: SimulationSpec, snapshot: Snapshot, imagine: Imagine
) -> dict[str, WorkloadView | None]:
    """The workloads in `spec` by key, in order; None without GPU pods. Raises BadChangeError."""
    found: dict[str, WorkloadView | None] = {}
    if len(spec.workloads) > MOST_WANTED:
        n_given = len(spec.workloads)
        raise BadChangeError(f"{n_given} workloads are given; at most {MOST_WANTED} are accepted")
    for ix, asked in enumerate(spec.workloads):
        key = f"{asked.namespace}/{asked.name}"
        if key in found or key in snapshot.workloads:
            raise BadChangeError(f"there is a workload {key} already; ask under another name")
        pod_sets = tuple(_pod_set(key, pods) for pods in asked.pod_sets)
        n_pods = sum(each.count for each in pod_sets)
        if n_pods > MOST_PODS or any(each.count < 0 for each in pod_sets):
            raise BadChangeError(f"{key}: {n_pods} pods; a workload has up to {MOST_PODS}")
        # Each is younger than those before it, so it comes after them in the queue.
        at_s = snapshot.now_s - len(spec.workloads) + ix
        found[key] = imagine(Wanted(asked.namespace, asked.name, pod_sets, at_s))
    return found


def _pod_set(key: str, pods: WantedPods) -> PodSet:
    try:
        template = msgspec.json.decode(pods.template, type=_Template)
    except msgspec.DecodeError as error:
        raise BadChangeError(f"{key}: its pod template can't be read: {error}") from None
    meta = template.metadata
    return PodSet(meta.labels or {}, meta.annotations or {}, template.spec, pods.count)


def tell_of(
    picture: Picture,
    spec: SimulationSpec,
    as_of: AsOf,
    wanted: Mapping[str, WorkloadView | None],
    is_late: Callable[[], bool],
) -> SimulationStatus:
    """How one decision differs with all changes in `spec` and `wanted` submitted, and the prospects
    of `wanted`. A run ahead ends once `is_late`. Raises BadChangeError."""
    known = [each for each in wanted.values() if each is not None]
    changed = apply(picture, spec, known)
    status = compare(picture, changed, spec, as_of)
    foresight = Foresight(changed, None)
    untold = [
        each.key for each in known if _state(changed.plan, each) == "waits"
        and not foresight.unstated_before(each)
    ]  # fmt: skip
    if untold:
        foresight = Foresight(changed, _look_ahead(changed, untold, is_late))
    status.workloads = list(_prospects(foresight, wanted))
    return status


def _prospects(
    foresight: Foresight, wanted: Mapping[str, WorkloadView | None]
) -> Iterator[Prospect]:
    plan, holds = foresight.picture.plan, _holds_after(foresight.picture)
    for key, workload in wanted.items():
        if workload is None:
            yield Prospect(workload=key, state="not ours", message="none of its pods requests GPUs")
            continue
        refused, state = plan.waits.get(key), _state(plan, workload)
        prospect = Prospect(
            workload=key,
            state=state,
            project=workload.project,
            request=format_gpus(foresight.picture.asked_milli(workload)),
            stops=sum(each.beneficiary == key for each in plan.evictions),
            moves=sum(each.beneficiary == key for each in plan.moves),
        )
        if state == "starts":
            prospect.is_within_quota = _is_within_quota(foresight.picture, workload, holds)
        elif refused is not None:
            prospect.reason, prospect.message = (
                refused.reason,
                refused.detail.removeprefix(f"{key}: "),
            )
        if state == "waits":
            prospect.earliest = foresight.of(workload).earliest
        yield prospect


def _state(plan: Plan, workload: WorkloadView) -> Prospects:
    if starts(plan, workload):
        return "starts"
    refused = plan.waits.get(workload.key)
    if refused is not None and (refused.reason in NOT_IN_LINE or NEVER in refused.detail):
        return "never"
    return "waits"


def _holds_after(picture: Picture) -> Counter[tuple[str, str]]:
    """Milli-GPU by queue and node pool once the plan is carried out; moves change nothing."""
    plan, snapshot = picture.plan, picture.snapshot
    holds = Counter({key: share.allocated[GPU] for key, share in plan.shares.items()})
    changes = [
        (given.workload.key, p.node, p.milli) for given in plan.admissions for p in given.placements
    ]
    changes += [(each.workload, each.pod.node, -each.pod.held_milli) for each in plan.evictions]
    for key, node, milli in changes:
        ix, workload = snapshot.nodes.ix_of(node), snapshot.workloads.get(key)
        if ix is not None and workload is not None:
            for queue in queues_of(snapshot, workload):
                holds[queue, snapshot.nodes.pool[ix]] += milli
    return holds


def _is_within_quota(
    picture: Picture, workload: WorkloadView, holds: Counter[tuple[str, str]]
) -> bool:
    """Whether its project and the queues above stay within their quotas with it, in each node pool
    where the workload is placed."""
    snapshot, given = picture.snapshot, admission_of(picture.plan, workload.key)
    ixs = (
        snapshot.nodes.ix_of(placement.node) for placement in (given.placements if given else ())
    )
    pools = {snapshot.nodes.pool[ix] for ix in ixs if ix is not None}
    keys = [(queue, pool) for queue in queues_of(snapshot, workload) for pool in pools]
    shares = picture.plan.shares
    return bool(keys) and all(
        key in shares and holds[key] <= shares[key].quota[GPU] for key in keys
    )


class _Finished(Exception):  # noqa: N818 (it ends a run, and is no error)
    """All workloads in question have started, or time is up."""


def _look_ahead(picture: Picture, keys: Sequence[str], is_late: Callable[[], bool]) -> Outlook:
    """When these workloads start, by stated run times."""
    now_s, workloads = picture.snapshot.now_s, picture.snapshot.workloads
    if len(workloads) > MOST_WORKLOADS:
        return Outlook(now_s, is_too_large=True)

    def pause() -> None:
        if is_late() or all(key in ahead.starts for key in keys):
            raise _Finished

    ahead = Ahead(picture, pause=pause)
    is_cut = False
    try:
        ahead.run()
        is_cut = ahead.is_cut
    except _Finished:
        is_cut = any(key not in ahead.starts for key in keys)
    return Outlook(now_s, dict(ahead.starts), frozenset(workloads), is_cut=is_cut)
