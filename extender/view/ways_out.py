"""Changes that would let a workload start now, each tried on the current cluster. Pure.

A try is one decision on the changed cluster, which takes seconds with ten thousand pending
workloads.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace as replaced

from extender.api.months import PER_GPU_HOUR
from extender.api.names import ANNOTATION_NODE_POOLS
from extender.api.units import MILLI_PER_GPU, count_gpus
from extender.policy.plan import Plan
from extender.state.model import GPU, WorkloadView
from extender.view.answers import WayOut
from extender.view.picture import BadChangeError, Picture, is_limited, starts, waits

#: Tries of a quota, each a decision: halving finds the minimum of 4,096 GPUs in twelve.
_MOST_TRIES: Final = 12
#: The highest priority in `manifests/base/priority-classes`.
_HIGHEST_PRIORITY: Final = 125

#: Whether the time for tries is over.
IsLate = Callable[[], bool]
#: A number, and the plan with it.
Found = tuple[int, Plan]


class LateError(Exception):
    """The time is over, without a result."""


@dataclass(slots=True, frozen=True)
class Trial:
    """Tries changes for a pending workload until `is_late`."""

    picture: Picture
    workload: WorkloadView
    is_late: IsLate

    def plan_of(self, changed: Picture) -> Plan | None:
        """The changed cluster's plan, or None if the workload does not start; raises LateError."""
        if self.is_late():
            raise LateError
        plan = changed.decided()
        return plan if starts(plan, changed.snapshot.workloads[self.workload.key]) else None

    def plan_with(self, workload: WorkloadView) -> Plan | None:
        """The same with only the workload changed."""
        return self.plan_of(self.picture.changed(workloads=[workload]))

    def most(self, low: int, high: int, attempt: Callable[[int], Plan | None]) -> Found | None:
        """By halving, the largest number from `low` to `high` that succeeds, and its plan.

        All smaller numbers are assumed to succeed too. None if `low` fails. Returns the largest
        found before `is_late`; raises LateError if there is none.
        """
        if high < low or (plan := attempt(low)) is None:
            return None
        best = (low, plan)
        low += 1
        for _ in range(_MOST_TRIES):
            if low > high or self.is_late():
                break
            middle = (low + high + 1) // 2
            plan = attempt(middle)
            if plan is None:
                high = middle - 1
            else:
                best, low = (middle, plan), middle + 1
        return best

    def way(self, change: str, plan: Plan) -> WayOut:
        """The change, and the further effects of its plan."""
        return WayOut(change, _effect(self.picture, plan))

    def first_in_pools(self, attempt: Callable[["Trial", str], WayOut | None]) -> WayOut | None:
        """The result in the first of the workload's node pools that has one; raises LateError."""
        found = (attempt(self, pool) for pool in self.workload.pools)
        return next(filter(None, found), None)

    def project_in(self, pool: str) -> str:
        """The project, with the pool if the workload may use several."""
        project = self.workload.project
        return f"{project} in pool {pool}" if len(self.workload.pools) > 1 else project


def ways_out(trial: Trial) -> tuple[list[WayOut], list[str]]:
    """The ways out, and the kinds of changes that were not tried for lack of time."""
    found: list[WayOut] = []
    not_tried: list[str] = []
    for name, attempt in _ATTEMPTS.items():
        try:
            way = attempt(trial)
        except LateError:
            not_tried.append(name)
        else:
            found += [way] if way else []
    return found, not_tried


def _with_fewer_pods(trial: Trial) -> WayOut | None:
    workload = trial.workload
    if workload.min_member < 2 or workload.tree is not None:
        return None

    def attempt(n: int) -> Plan | None:
        return trial.plan_with(replaced(workload, min_member=n))

    found = trial.most(1, workload.min_member - 1, attempt)
    if found is None:
        return None
    n = found[0]
    change = f"{n} pods or fewer must start together" if n > 1 else "its pods may start one by one"
    return trial.way(change, found[1])


def _with_less_of_a_gpu(trial: Trial) -> WayOut | None:
    workload = trial.workload
    pod = next(filter(waits, workload.pods), None)
    if pod is None or len(workload.pods) > 1 or pod.demand.devices != 1 or pod.demand.counted:
        return None
    if not pod.demand.milli:
        return None

    def attempt(tenths: int) -> Plan | None:
        demand = replaced(pod.demand, milli=tenths * MILLI_PER_GPU // 10)
        return trial.plan_with(replaced(workload, pods=(replaced(pod, demand=demand),)))

    found = trial.most(1, (pod.demand.milli * 10 - 1) // MILLI_PER_GPU, attempt)
    return trial.way(f"gpu-fraction is 0.{found[0]} or less", found[1]) if found else None


def _in_another_pool(trial: Trial) -> WayOut | None:
    workload = trial.workload
    for pool in sorted(set(trial.picture.snapshot.pools) - set(workload.pools)):
        plan = trial.plan_with(replaced(workload, pools=(*workload.pools, pool)))
        if plan is not None:
            change = f"node pool {pool} is allowed, too (annotation {ANNOTATION_NODE_POOLS})"
            return trial.way(change, plan)
    return None


def _with_more_priority(trial: Trial) -> WayOut | None:
    """Decisions compare only the order of priorities, so only those that equal or just exceed
    another workload's can make a difference."""
    workload = trial.workload
    others = {each.priority for each in trial.picture.snapshot.workloads.values()}
    steps = {each + more for each in others for more in (0, 1)}
    priorities = sorted(
        (p for p in steps if workload.priority < p <= _HIGHEST_PRIORITY), reverse=True
    )

    def attempt(at: int) -> Plan | None:
        return trial.plan_with(replaced(workload, priority=priorities[at]))

    found = trial.most(0, len(priorities) - 1, attempt)
    return trial.way(f"its priority is {priorities[found[0]]} or more", found[1]) if found else None


def _with_more_quota(trial: Trial) -> WayOut | None:
    return trial.first_in_pools(_with_more_quota_in)


def _with_more_quota_in(trial: Trial, pool: str) -> WayOut | None:
    picture, project = trial.picture, trial.workload.project
    mine = picture.plan.shares.get((project, pool))
    if mine is None or not is_limited(mine.quota[GPU]):
        return None
    has = mine.quota[GPU] // MILLI_PER_GPU
    most = sum(picture.snapshot.nodes.cards.capacity_milli) // MILLI_PER_GPU

    def attempt(less: int) -> Plan | None:
        quotas = {(project, pool): (most - less) * MILLI_PER_GPU}
        try:
            return trial.plan_of(picture.changed(quotas=quotas))
        except BadChangeError:
            return None

    found = trial.most(0, most - has - 1, attempt)
    if found is None:
        return None
    named = trial.project_in(pool)
    return trial.way(f"the quota of {named} is {most - found[0]} or more", found[1])


def _with_more_hours(trial: Trial) -> WayOut | None:
    return trial.first_in_pools(_with_more_hours_in)


def _with_more_hours_in(trial: Trial, pool: str) -> WayOut | None:
    project, now_s = trial.workload.project, trial.picture.snapshot.now_s
    mine = trial.picture.plan.shares.get((project, pool))
    if mine is None or not mine.month or not mine.month.is_spent_at(now_s):
        return None
    used = mine.month.used if mine.month.is_known_at(now_s) else 0
    hours = used // PER_GPU_HOUR + 1
    budgets = {(project, pool): hours * PER_GPU_HOUR}
    plan = trial.plan_of(trial.picture.changed(budgets=budgets))
    named = trial.project_in(pool)
    return trial.way(f"gpuHoursPerMonth of {named} is {hours} or more", plan) if plan else None


#: Kinds of changes; those that the user can make come first.
_ATTEMPTS: Final[dict[str, Callable[[Trial], WayOut | None]]] = {
    "fewer pods": _with_fewer_pods,
    "less of a GPU": _with_less_of_a_gpu,
    "another node pool": _in_another_pool,
    "more priority": _with_more_priority,
    "more quota": _with_more_quota,
    "more GPU-hours": _with_more_hours,
}


def _effect(picture: Picture, plan: Plan) -> str:
    """What the plan does to other workloads in addition to the current plan, by project."""
    anyway = {eviction.pod.uid for eviction in picture.plan.evictions}
    anyway |= {move.pod.uid for move in picture.plan.moves}
    stopped: Counter[str] = Counter()
    for eviction in plan.evictions:
        if eviction.pod.uid not in anyway:
            victim = picture.snapshot.workloads.get(eviction.workload)
            stopped[victim.project if victim else ""] += eviction.pod.held_milli
    moved = sum(move.pod.uid not in anyway for move in plan.moves)
    parts = [
        f"{count_gpus(milli)} of {project} taken" for project, milli in sorted(stopped.items())
    ]
    if moved:
        parts.append(f"{moved} {'pod moves' if moved == 1 else 'pods move'}")
    return " and ".join(parts)
