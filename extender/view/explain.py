"""Explains why a workload is pending: why each stage fails, and changes that would start it now.

Every line of an answer comes from `decide` on the current snapshot, not from a second
implementation of a rule: a check runs the stages up to one and reports their reason; a way out is
shown only if the workload was placed in the changed snapshot.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace as replaced

from extender.api.reasons import SENTENCES, Reason, Refused
from extender.api.units import count_gpus, format_gpus
from extender.policy.placement.explain import NEVER, help_for
from extender.policy.plan import Stage
from extender.policy.queues.months import spent_sentence
from extender.state.model import GPU, WorkloadView
from extender.view.answers import (
    AsOf,
    Check,
    Explanation,
    Metadata,
    Outcome,
    QueueFigures,
    State,
)
from extender.view.figures import figures_of
from extender.view.line import NOT_IN_LINE, as_time, place_of
from extender.view.picture import Picture, asked_memory, is_limited, starts, waits
from extender.view.ways_out import IsLate, Trial, ways_out

_NO_ROOM_ABOVE: Final = (
    "no other queue is so far above its share that its pods would make enough room"
)
#: The stages, with their names for users.
_STAGES: Final[tuple[tuple[Stage, str], ...]] = (
    ("allocate", "room now"),
    ("consolidate", "moving others"),
    ("reclaim", "reclaim"),
    ("preempt", "preemption"),
)


def find(picture: Picture, namespace: str, name: str) -> tuple[WorkloadView | None, int]:
    """The workload with this name, with a pod of this name, or with pods of an owner of this name;
    of several, the first that is pending. Also the number of other matches."""
    workloads = picture.snapshot.workloads
    exact = workloads.get(f"{namespace}/{name}")
    if exact is not None:
        return exact, 0
    found = []
    for workload in workloads.values():
        if workload.namespace != namespace:
            continue
        names = [pod.name for pod in workload.pods]
        if name in names:
            return workload, 0
        if any(each.startswith(f"{name}-") for each in names):
            found.append(workload)
    found.sort(key=lambda each: (not any(map(waits, each.pods)), each.created_at, each.key))
    return (found[0], len(found) - 1) if found else (None, 0)


def explain(
    picture: Picture, found: tuple[WorkloadView, int], as_of: AsOf, published: str = ""
) -> Explanation:
    """The explanation of the workload that `find` found, without any tries."""
    workload, others = found
    plan = picture.plan
    refused = plan.waits.get(workload.key)
    n_waiting = sum(map(waits, workload.pods))
    answer = Explanation(
        metadata=Metadata(workload.name, workload.namespace),
        state=_state(workload, refused, n_waiting),
        workload=workload.key,
        project=workload.project,
        user=workload.user,
        pods=len(workload.pods),
        waiting_pods=n_waiting,
        request=format_gpus(picture.asked_milli(workload)),
        gpu_memory=asked_memory(workload),
        work_kind=workload.kind,
        priority=workload.priority,
        is_preemptible=workload.is_preemptible and workload.key not in plan.kept,
        node_pools=list(workload.pools),
        nodes=sorted({pod.node for pod in workload.pods if pod.node}),
        others=others,
        as_of=as_of,
        published=published,
    )
    if n_waiting:
        answer.waits_since = as_time(workload.waits_since or workload.created_at)
    figures = _figures_of(picture, workload, answer.nodes)
    answer.queue, answer.other_queues = next(iter(figures), None), figures[1:]
    if refused is None:
        return answer
    answer.reason = refused.reason
    answer.message = _plain(refused, workload)
    answer.help = help_for(refused)
    answer.agrees = published in ("", answer.reason)
    answer.place = place_of(picture, workload)
    return answer


def try_ways(
    explanation: Explanation, picture: Picture, workload: WorkloadView, is_late: IsLate
) -> None:
    """Adds checks and ways out for a workload in the queue; each takes some decisions.

    Once `is_late`, no further node pool is checked and no further way out is tried.
    """
    refused = picture.plan.waits.get(workload.key)
    if refused is None or refused.reason in NOT_IN_LINE:
        return
    by_pool: dict[str, list[Check]] = {}
    pools = workload.pools or ("",)
    for pool in pools:
        if not by_pool or not is_late():
            by_pool[pool] = list(_checks(picture, workload, pool))
    explanation.checks = [*_merged(by_pool), *_new_nodes(picture, workload)]
    explanation.ways_out, not_tried = ways_out(Trial(picture, workload, is_late))
    unchecked = [f"checks in pool {pool}" for pool in pools if pool not in by_pool]
    explanation.not_tried = unchecked + not_tried


def _figures_of(
    picture: Picture, workload: WorkloadView, nodes: Iterable[str]
) -> list[QueueFigures]:
    """The project's figures in the pools of the workload's nodes, or in those that it may use."""
    placed = list(filter(None, map(picture.snapshot.nodes.pool_of, nodes)))
    return [
        figures_of(workload.project, pool, picture.plan, picture.snapshot)
        for pool in dict.fromkeys(placed or workload.pools)
        if (workload.project, pool) in picture.plan.shares
    ]


def _state(workload: WorkloadView, refused: Refused | None, n_waiting: int) -> State:
    if refused is not None and NEVER in refused.detail:
        return "never"
    if refused is not None and refused.reason != Reason.WAITING_FOR_VICTIMS:
        return "waits"
    return "starting" if n_waiting or any(p.state == "reserved" for p in workload.pods) else "runs"


def _plain(refused: Refused, workload: WorkloadView) -> str:
    """The detail without the workload's name."""
    detail = refused.detail.removeprefix(f"{workload.key}: ")
    return detail or SENTENCES[refused.reason]


def _merged(by_pool: Mapping[str, Sequence[Check]]) -> Iterator[Check]:
    """The checks of all node pools, each pool's beside the others'; one that is the same in every
    pool is given once, without a pool."""
    listed = [check for checks in by_pool.values() for check in checks]
    for name in dict.fromkeys(check.name for check in listed):
        checks = [check for check in listed if check.name == name]
        if len(checks) == len(by_pool) and all(check == checks[0] for check in checks):
            yield checks[0]
            continue
        for pool, found in by_pool.items():
            yield from (
                Check(f"{name} in {pool}", check.outcome, check.message)
                for check in found
                if check.name == name
            )


def _checks(picture: Picture, workload: WorkloadView, pool: str) -> Iterator[Check]:
    """The result of each stage for the workload in one of its node pools, after the stages before
    it."""
    stages: list[Stage] = []
    last, refused = "", None
    here = picture
    if len(workload.pools) > 1:
        here = picture.changed(workloads=[replaced(workload, pools=(pool,))])
    for stage, name in _STAGES:
        stages.append(stage)
        plan = here.decided(stages)
        if starts(plan, workload):
            yield Check(name, "yes", "this stage places it")
            return
        refused = plan.waits.get(workload.key)
        message = _plain(refused, workload) if refused else "its turn has not come"
        is_protected = refused is not None and refused.reason is Reason.VICTIMS_PROTECTED
        # A later stage repeats an earlier stage's reason.
        is_known = is_protected and message != last
        why_not = "" if is_known else _why_not((picture, pool), workload, stage, refused)
        yield Check(name, "no", why_not or message)
        last = message
    yield _limits((picture, pool), workload, refused, last)


def _new_nodes(picture: Picture, workload: WorkloadView) -> Iterator[Check]:
    """Whether nodes are added for the workload, if its node pools are elastic."""
    found = picture.scale_ups
    if wanted := found.wanted.get(workload.key):
        nodes = "1 more node" if wanted.n_nodes == 1 else f"{wanted.n_nodes} more nodes"
        pool = picture.snapshot.pools[wanted.pool]
        reads_pods = pool.elastic is not None and pool.elastic.reads_pods
        asks = "its pods ask" if reads_pods else "a ProvisioningRequest asks"
        yield Check("new nodes", "yes", f"{asks} for {nodes} of {wanted.pool}")
    elif why_not := found.refused.get(workload.key):
        yield Check("new nodes", "no", why_not)


def _why_not(
    where: tuple[Picture, str], workload: WorkloadView, stage: Stage, refused: Refused | None
) -> str:
    """Why an evicting stage does nothing for the workload in the pool; empty if its own reason is
    best."""
    picture, pool = where
    snapshot, shares = picture.snapshot, picture.plan.shares
    mine = shares.get((workload.project, pool))
    if mine is None:
        return ""
    if stage == "reclaim":
        more, held = picture.asked_milli(workload, is_waiting_only=True), mine.allocated[GPU]
        if held + more > max(mine.fair_share[GPU], mine.quota[GPU]):
            return (
                f"{workload.project} holds {count_gpus(held)}; with this work it would hold"
                f" {format_gpus(held + more)}, above its fair share of"
                f" {format_gpus(mine.fair_share[GPU])} and its quota of {_or_none(mine.quota[GPU])}"
            )
        is_told = refused is not None and refused.reason is Reason.OVER_FAIR_SHARE
        return "" if is_told else _NO_ROOM_ABOVE
    if stage == "preempt":
        lower = [
            pod
            for other in snapshot.workloads.values()
            if other.project == workload.project
            and other.priority < workload.priority
            and other.is_preemptible
            and other.key not in picture.plan.kept
            for pod in other.pods
            if pod.node and snapshot.nodes.pool_of(pod.node) == pool
        ]
        if not lower:
            return f"nothing of {workload.project} runs below priority {workload.priority}"
        milli = sum(pod.held_milli for pod in lower)
        return (
            f"what {workload.project} runs below priority {workload.priority}"
            f" ({count_gpus(milli)}) would not make enough room"
        )
    return ""


def _limits(
    where: tuple[Picture, str], workload: WorkloadView, refused: Refused | None, message: str
) -> Check:
    """Whether a limit, or an exhausted budget, keeps the workload pending in the pool."""
    picture, pool = where
    words = message if refused is None else f"{refused.reason} {message}"
    is_bound = any(each in words for each in (Reason.OVER_LIMIT, Reason.OVER_BUDGET))
    mine = picture.plan.shares.get((workload.project, pool))
    if mine is not None and refused is not None:
        # This reason takes precedence over a limit.
        is_np = refused.reason is Reason.NON_PREEMPTIBLE_OVER_QUOTA
        is_bound = is_bound or (is_np and mine.allocated[GPU] >= mine.limit[GPU])
    outcome: Outcome = "no" if is_bound else "yes"
    if mine is not None and mine.month and mine.month.is_spent_at(picture.snapshot.now_s):
        spent = spent_sentence(mine.month, mine.quota[GPU])
        return Check("room within limits", outcome, f"{workload.project} {spent}")
    if mine is None or not is_limited(mine.limit[GPU]):
        return Check("room within limits", outcome, "its project has no limit")
    held, limit = format_gpus(mine.allocated[GPU]), count_gpus(mine.limit[GPU])
    return Check("room within limits", outcome, f"its project holds {held} of at most {limit}")


def _or_none(milli: int) -> str:
    return format_gpus(milli) if is_limited(milli) else "any number"
