"""The queue of pending workloads, in the order in which the last decision considered them.

Workloads that it did not consider, since no node of their pools can hold them, are behind all
others, by priority and age; so are those of `Priority` pools, where that is the order."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

from extender.api.reasons import SENTENCES, Reason
from extender.api.units import api_time, format_gpus
from extender.policy.placement.explain import NEVER
from extender.state.model import WorkloadView
from extender.view.answers import Place, Waiting
from extender.view.picture import Picture, asked_memory, waits

#: The workload waits for its owner to act; other workloads pass it.
NOT_IN_LINE: Final = frozenset(
    {
        Reason.GANG_INCOMPLETE,
        Reason.UNKNOWN_NODE_POOL,
        Reason.UNKNOWN_PROJECT,
        Reason.UNKNOWN_TOPOLOGY,
        Reason.INVALID_REQUEST,
        Reason.PRIORITY_CLASS_NOT_ALLOWED,
        Reason.HELD_BY_OTHER_GATE,
        Reason.HELD_BY_OWNER,
        Reason.CLAIMS_NOT_MET,
    }
)


def _line_of(picture: Picture) -> list[str]:
    """Keys of the workloads that wait for room, the next one first."""
    plan, workloads = picture.plan, picture.snapshot.workloads
    turns = {key: turn for turn, key in enumerate(plan.turns)}

    def order(key: str) -> tuple[int, int, int, str]:
        workload = workloads[key]
        return turns.get(key, len(turns)), -workload.priority, workload.created_at, key

    found = (
        key
        for key, refused in plan.waits.items()
        if key in workloads and refused.reason not in NOT_IN_LINE
    )
    return sorted(found, key=order)


def place_of(picture: Picture, workload: WorkloadView) -> Place | None:
    """The workload's position in the queue; None if it has none."""
    line = _line_of(picture)
    if workload.key not in line:
        return None
    workloads, ahead = picture.snapshot.workloads, line[: line.index(workload.key) + 1]
    pools = set(workload.pools)

    def count(keys: list[str], of: Callable[[WorkloadView], bool]) -> int:
        return sum(of(workloads[key]) for key in keys)

    def is_of_project(other: WorkloadView) -> bool:
        return other.project == workload.project

    def is_of_pool(other: WorkloadView) -> bool:
        return not pools.isdisjoint(other.pools)

    return Place(
        in_project=count(ahead, is_of_project),
        of_project=count(line, is_of_project),
        in_pool=count(ahead, is_of_pool),
        of_pool=count(line, is_of_pool),
    )


def waiting(
    picture: Picture, namespace: str = "", *, is_own_only: bool = False
) -> Iterator[Waiting]:
    """Every pending workload, in queue order. With a namespace, only its workloads are named; of
    others the project, size and reason are included, or nothing if `is_own_only`."""
    line = _line_of(picture)
    positions = {key: position for position, key in enumerate(line, 1)}
    apart = [key for key in picture.plan.waits if key not in positions]
    for key in [*line, *sorted(apart)]:
        workload = picture.snapshot.workloads.get(key)
        if workload is None:
            continue
        is_named = namespace in ("", workload.namespace)
        if is_own_only and not is_named:
            continue
        refused = picture.plan.waits[key]
        entry = Waiting(
            position=positions.get(key, 0),
            project=workload.project,
            request=format_gpus(picture.asked_milli(workload, is_waiting_only=True)),
            gpu_memory=asked_memory(workload, is_waiting_only=True),
            pods=sum(map(waits, workload.pods)),
            reason=refused.reason,
            never=NEVER in refused.detail,
        )
        if is_named:
            entry.workload, entry.user = key, workload.user
            entry.is_group = workload.is_group
            entry.work_kind, entry.priority = workload.kind, workload.priority
            entry.waits_since = as_time(workload.waits_since or workload.created_at)
            entry.message = refused.detail.removeprefix(f"{key}: ") or SENTENCES[refused.reason]
        yield entry


def as_time(unix_s: int) -> str:
    """RFC 3339 in UTC; empty for 0, which means unknown."""
    return api_time(datetime.fromtimestamp(unix_s, UTC)) if unix_s else ""


def as_unix_s(time: str) -> int:
    """The unix seconds of `as_time`; 0 for an empty string."""
    return int(datetime.fromisoformat(time).timestamp()) if time else 0
