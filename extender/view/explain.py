"""Explains why a workload is pending: why each stage fails, and changes that would start it now.

Every line of an answer comes from `decide` on the current snapshot, not from a second
implementation of a rule: a check runs the stages up to one and reports their reason; a way out is
shown only if the workload was placed in the changed snapshot.
"""

from collections.abc import Iterator
from typing import Final

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
    State,
)
from extender.view.figures import figures_of
from extender.view.line import NOT_IN_LINE, as_time, place_of
from extender.view.picture import Picture, asked_milli, is_limited, starts, waits
from extender.view.ways_out import IsLate, Trial, ways_out

_NO_ROOM_ABOVE: Final = "no other queue is so far above its share that its pods would make the room"
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
        request=format_gpus(asked_milli(workload)),
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
    # The pool of its running pods, else the first that it may use.
    placed = filter(None, map(picture.snapshot.nodes.pool_of, answer.nodes))
    pool = next(iter((*placed, *workload.pools)), "")
    if (workload.project, pool) in plan.shares:
        answer.queue = figures_of(workload.project, pool, plan, picture.snapshot)
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

    Once `is_late`, no further way out is tried.
    """
    refused = picture.plan.waits.get(workload.key)
    if refused is not None and refused.reason not in NOT_IN_LINE:
        explanation.checks = list(_checks(picture, workload))
        explanation.ways_out, explanation.not_tried = ways_out(Trial(picture, workload, is_late))


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


def _checks(picture: Picture, workload: WorkloadView) -> Iterator[Check]:
    """The result of each stage for the workload, after the stages before it."""
    stages: list[Stage] = []
    last = ""
    for stage, name in _STAGES:
        stages.append(stage)
        plan = picture.decided(stages)
        if starts(plan, workload):
            yield Check(name, "yes", "it gets its place so")
            return
        refused = plan.waits.get(workload.key)
        message = _plain(refused, workload) if refused else "its turn has not come"
        is_protected = refused is not None and refused.reason is Reason.VICTIMS_PROTECTED
        # A later stage repeats an earlier stage's reason.
        is_known = is_protected and message != last
        why_not = "" if is_known else _why_not(picture, workload, stage, refused)
        yield Check(name, "no", why_not or message)
        last = message
    yield from _new_nodes(picture, workload)
    yield _limits(picture, workload, last)


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
    picture: Picture, workload: WorkloadView, stage: Stage, refused: Refused | None
) -> str:
    """Why an evicting stage does nothing for the workload; empty if its own reason is best."""
    snapshot, shares = picture.snapshot, picture.plan.shares
    pool = workload.pools[0] if workload.pools else ""
    mine = shares.get((workload.project, pool))
    if mine is None:
        return ""
    if stage == "reclaim":
        more, held = asked_milli(workload, is_waiting_only=True), mine.allocated[GPU]
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
            other
            for other in snapshot.workloads.values()
            if other.project == workload.project
            and other.priority < workload.priority
            and other.is_preemptible
            and other.key not in picture.plan.kept
            and any(pod.node for pod in other.pods)
        ]
        if not lower:
            return f"nothing of {workload.project} runs below priority {workload.priority}"
        milli = sum(pod.held_milli for other in lower for pod in other.pods)
        return (
            f"what {workload.project} runs below priority {workload.priority}"
            f" ({count_gpus(milli)}) would not make the room"
        )
    return ""


def _limits(picture: Picture, workload: WorkloadView, message: str) -> Check:
    """Whether a limit, or an exhausted budget, keeps the workload pending."""
    refused = picture.plan.waits.get(workload.key)
    words = message if refused is None else f"{refused.reason} {message}"
    is_bound = any(each in words for each in (Reason.OVER_LIMIT, Reason.OVER_BUDGET))
    outcome: Outcome = "no" if is_bound else "yes"
    mine = picture.plan.shares.get((workload.project, workload.pools[0] if workload.pools else ""))
    if mine is not None and mine.month and mine.month.is_spent_at(picture.snapshot.now_s):
        spent = spent_sentence(mine.month, mine.quota[GPU])
        return Check("limits", outcome, f"{workload.project} {spent}")
    if mine is None or not is_limited(mine.limit[GPU]):
        return Check("limits", outcome, "its project has no limit")
    held, limit = format_gpus(mine.allocated[GPU]), count_gpus(mine.limit[GPU])
    return Check("limits", outcome, f"its project holds {held} of at most {limit}")


def _or_none(milli: int) -> str:
    return format_gpus(milli) if is_limited(milli) else "any number"
