"""When a workload starts, as one of three words, and how often they held. Pure.

- `promised`: the current decision places the workload, and with it, its project and the queues
  above hold no more than their quotas. It starts once victims are gone and budgets allow it.
- `forecast`: the current decision places it above its quota: the same bound applies, unless its
  cards are reclaimed.
- `no forecast`: neither; the message says why. If all workloads that run, or that start before it,
  state their run times, a run ahead gives a time before which it does not start. The delay after
  that depends on later submissions, so no latest time is given: on a production trace none held in
  four of five cases every week.
"""

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import Final

from msgspec.structs import replace as replaced

from extender.api.reasons import Reason
from extender.api.units import count_gpus
from extender.policy.placement.explain import NEVER
from extender.policy.plan import Admission
from extender.state.model import DISRUPTION_BUDGET_S, GPU, WorkloadView, max_grace_s
from extender.state.tally import pod_amounts
from extender.view.ahead import HORIZON_S, MOST_DECISIONS
from extender.view.answers import Forecast, Word
from extender.view.line import NOT_IN_LINE, as_time, as_unix_s
from extender.view.picture import Picture, queues_of, starts, waits

#: From the last victim's end to the last pod's binding: two cycles, rows, releases and Bindings.
START_S: Final = 60
#: The part of the predicted wait, and the seconds in addition, by which a workload may start before
#: the run ahead predicts: a job that ends elsewhere frees the cards of one that would have moved.
SOONER_PERCENT: Final = 5
SOONER_S: Final = 60
#: With more workloads there is no run ahead: it would use more than half a core for minutes.
MOST_WORKLOADS: Final = 2000
#: Workloads of this kind are not expected to end, so they need no stated run time.
ENDLESS: Final = "inference"
#: Outcomes of forecasts that are kept for each project and word.
REMEMBERED: Final = 200


@dataclass(slots=True, frozen=True)
class Outlook:
    """The result of a run ahead from `made_s` (unix seconds): the start of each workload, of those
    `seen`. `is_too_large`: there was no run; `is_cut`: the run was not finished."""

    made_s: int
    starts: Mapping[str, int] = field(default_factory=dict)
    seen: frozenset[str] = frozenset()
    is_too_large: bool = False
    is_cut: bool = False


def _unstated_of(picture: Picture, workload: WorkloadView, *, is_waiting: bool) -> Counter[str]:
    """Milli-GPU by node pool of the workload's pods that do not state how long they run, or have
    run longer; only of those that are pending, or only of others, if `is_waiting` is given."""
    found: Counter[str] = Counter()
    snapshot, run_s = picture.snapshot, workload.expected_run_s
    for pod in workload.pods if workload.kind != ENDLESS else ():
        if not pod.demand.is_gpu_work or pod.is_terminating or waits(pod) != is_waiting:
            continue
        if run_s is not None and (not pod.started_at or pod.started_at + run_s > snapshot.now_s):
            continue
        pool = snapshot.nodes.pool_of(pod.node)
        for name in (pool,) if pool else workload.pools:
            mib = picture.card_sizes.get(name, 0)
            found[name] += pod.held_milli or pod_amounts(pod.demand, mib)[GPU]
    return found


def placed(picture: Picture) -> dict[str, Forecast]:
    """Forecasts of the workloads that are placed on this picture, by workload key: within quota a
    promise, above it a forecast. Costs a decision or two."""
    now_s, snapshot = picture.snapshot.now_s, picture.snapshot
    found: dict[str, Forecast] = {}
    held = {key: share.allocated[GPU] for key, share in picture.plan.shares.items()}
    bound_s = _leaving_s(picture) + START_S
    budget_s = _budget_s(picture)
    for admission in _in_line(picture):
        workload = snapshot.workloads[admission.workload.key]
        is_now = starts(picture.plan, workload)
        is_owed = _charge_within_quota(picture, admission, held)
        if not (is_now or is_owed):
            continue
        latest_s = now_s + bound_s + (0 if is_now else budget_s)
        word: Word = "promised" if is_owed else "forecast"
        message = "within quota" if is_owed else "it has its place, above its quota"
        if not is_now:
            message += ", once disruption budgets allow it"
        found[workload.key] = Forecast(word, as_time(now_s), as_time(latest_s), message)
    return found


@dataclass(frozen=True)
class Foresight:
    """Forecasts for all pending workloads of one picture, with the result of a run ahead."""

    picture: Picture
    outlook: Outlook | None

    @cached_property
    def placed(self) -> dict[str, Forecast]:
        """Forecasts of placed workloads, by workload key."""
        return placed(self.picture)

    @cached_property
    def _unstated_running(self) -> Counter[str]:
        """Milli-GPU by node pool of running pods without a stated run time."""
        found: Counter[str] = Counter()
        for workload in self.picture.snapshot.workloads.values():
            found.update(_unstated_of(self.picture, workload, is_waiting=False))
        return found

    @cached_property
    def _unstated_starts(self) -> dict[str, list[tuple[int, int]]]:
        """By node pool, when the run ahead starts pending workloads without a stated run time, the
        earliest first, and the milli-GPU of all up to each."""
        found: dict[str, list[tuple[int, int]]] = {}
        starts = self.outlook.starts if self.outlook else {}
        for key in sorted(starts, key=lambda key: starts[key]):
            workload = self.picture.snapshot.workloads.get(key)
            if workload is None:
                continue
            for pool, milli in _unstated_of(self.picture, workload, is_waiting=True).items():
                listed = found.setdefault(pool, [])
                listed.append((starts[key], milli + (listed[-1][1] if listed else 0)))
        return found

    def unstated_before(self, workload: WorkloadView) -> int:
        """Milli-GPU, in the one of the workload's node pools that has most, of pods without a
        stated run time on which its start depends: of other workloads, those that run and those
        that the run ahead starts before it."""
        own = _unstated_of(self.picture, workload, is_waiting=False)
        outlook, start_s = self.outlook, 0
        if outlook is not None and workload.key in outlook.seen:
            start_s = outlook.starts.get(workload.key, outlook.made_s + HORIZON_S)
        return max(
            (
                self._unstated_running[pool] - own[pool] + self._started_by(pool, start_s)
                for pool in workload.pools
            ),
            default=0,
        )

    def _started_by(self, pool: str, start_s: int) -> int:
        """Milli-GPU without a stated run time that the run ahead starts in the pool before this."""
        listed = self._unstated_starts.get(pool, ())
        n_before = bisect_left(listed, start_s, key=itemgetter(0))
        return listed[n_before - 1][1] if n_before else 0

    def of(self, workload: WorkloadView) -> Forecast:
        """The forecast of a pending workload; a new object each time."""
        placed_now = self.placed.get(workload.key)
        if placed_now is not None:
            return replaced(placed_now)
        why = self._why_unknown(workload)
        if why or self.outlook is None:
            return Forecast("no forecast", message=why)
        earliest_s = not_before(self.outlook.made_s, self.outlook.starts[workload.key])
        message = "how much later depends on what is submitted meanwhile"
        return Forecast("no forecast", as_time(earliest_s), message=message)

    def _why_unknown(self, workload: WorkloadView) -> str:
        refused, outlook = self.picture.plan.waits.get(workload.key), self.outlook
        lacks_node = refused is not None and refused.reason is Reason.NO_MATCHING_NODE
        if refused is not None and (lacks_node or refused.reason in NOT_IN_LINE):
            return f"it gets no place until the cause of {refused.reason} is removed"
        if refused is not None and NEVER in refused.detail:
            return "it will never start as it is"
        milli = self.unstated_before(workload)
        if milli:
            return (
                f"pods with {count_gpus(milli)} that run in its node pools, or start there before"
                " it, do not state how long they run, or have run longer (annotation"
                " ballast.dev/expected-run-seconds)"
            )
        return _why_not_run(outlook, workload.key)


def not_before(made_s: int, start_s: int) -> int:
    """The earliest start of a workload that a run ahead from `made_s` starts at `start_s`."""
    return start_s - (start_s - made_s) * SOONER_PERCENT // 100 - SOONER_S


def _why_not_run(outlook: Outlook | None, key: str) -> str:
    """Why a run ahead gives no start of the workload; empty if it does."""
    if outlook is not None and outlook.is_too_large:
        return f"more than {MOST_WORKLOADS} workloads run or wait"
    if outlook is None or key not in outlook.seen:
        return "it came after the last look ahead; ask again in a minute"
    if key not in outlook.starts and outlook.is_cut:
        return f"a run of {MOST_DECISIONS} decisions ahead does not reach its start"
    if key not in outlook.starts:
        return f"by the run times that are stated, not within {HORIZON_S // 3600} hours"
    return ""


def _in_line(picture: Picture) -> Iterator[Admission]:
    """Admissions now, or once disruption budgets no longer delay evictions, in decision order."""
    plan = picture.without_budgets
    for admission in plan.admissions:
        workload = picture.snapshot.workloads.get(admission.workload.key)
        if workload is not None and starts(plan, workload):
            yield admission


def _charge_within_quota(
    picture: Picture, admission: Admission, held: dict[tuple[str, str], int]
) -> bool:
    """Charge the workload to all queues above it in `held`, if each stays within its quota; returns
    whether they do."""
    snapshot, workload = picture.snapshot, admission.workload
    ix = snapshot.nodes.ix_of(admission.placements[0].node)
    pool = snapshot.nodes.pool[ix] if ix is not None else ""
    # A nominated pod's cards are held by its row, but not part of the queue's allocation.
    milli = picture.asked_milli(workload, is_waiting_only=True)
    keys = [(queue, pool) for queue in queues_of(snapshot, workload)]
    for key in keys:
        share = picture.plan.shares.get(key)
        if share is None or held[key] + milli > share.quota[GPU]:
            return False
    for key in keys:
        held[key] += milli
    return bool(keys)


def _leaving_s(picture: Picture) -> int:
    """The longest termination time of terminating pods and victims, in seconds."""
    snapshot, plan = picture.snapshot, picture.without_budgets
    uids = {each.pod.uid for each in plan.evictions}
    uids |= {move.pod.uid for move in plan.moves}
    grace_s = 0
    for workload in snapshot.workloads.values():
        for pod in workload.pods:
            if pod.is_terminating or pod.uid in uids:
                queue = snapshot.queues.get(workload.project)
                pool = next((snapshot.pools.get(name) for name in workload.pools), None)
                grace_s = max(grace_s, min(pod.grace_s, max_grace_s(queue, pool)))
    return grace_s


def _budget_s(picture: Picture) -> int:
    """The longest time for which disruption budgets delay an eviction."""
    snapshot = picture.snapshot
    stated = [pool.disruption_budget_s for pool in snapshot.pools.values()]
    stated += [q.disruption_budget_s for q in snapshot.queues.values() if q.disruption_budget_s]
    return max(stated, default=DISRUPTION_BUDGET_S)


@dataclass(slots=True)
class _FirstAnswer:
    """The first answer about a workload, for pods with these UIDs; times are unix seconds, and
    `latest_s` is 0 without a latest time."""

    word: Word
    project: str
    earliest_s: int
    latest_s: int
    uids: frozenset[str]


@dataclass(slots=True)
class HitRate:
    """Whether answers held, by word and project: the last `REMEMBERED` of each that came due.

    The first answer with a time counts; later ones do not replace it. It held if the workload
    started within its interval. A workload that is deleted before it starts does not count.
    """

    _given: dict[str, _FirstAnswer] = field(default_factory=dict)
    _outcomes: dict[tuple[Word, str], deque[bool]] = field(default_factory=dict)

    def give(self, workload: WorkloadView, forecast: Forecast) -> None:
        """Record the answer about the workload."""
        uids = frozenset(pod.uid for pod in workload.pods)
        known = self._given.get(workload.key)
        if forecast.earliest and (known is None or not known.uids & uids):
            span_s = as_unix_s(forecast.earliest), as_unix_s(forecast.latest)
            given = _FirstAnswer(forecast.word, workload.project, *span_s, uids)
            self._given[workload.key] = given

    def review(self, picture: Picture) -> Iterator[tuple[Word, bool]]:
        """The word of each answer that is due in the picture, and whether it held."""
        snapshot = picture.snapshot
        for key, given in list(self._given.items()):
            workload = snapshot.workloads.get(key)
            pods = workload.pods if workload else ()
            if workload is None or not given.uids & {pod.uid for pod in pods}:
                del self._given[key]
                continue
            n_live = sum(pod.state in ("bound", "reserved") for pod in pods)
            is_started = n_live >= workload.min_member or not any(map(waits, pods))
            latest_s = given.latest_s or snapshot.now_s
            if not is_started and snapshot.now_s <= latest_s:
                continue
            del self._given[key]
            started = [pod.started_at for pod in pods if pod.started_at]
            start_s = max(started, default=snapshot.now_s)
            has_held = is_started and given.earliest_s <= start_s <= latest_s
            outcomes = self._outcomes.setdefault(
                (given.word, given.project), deque(maxlen=REMEMBERED)
            )
            outcomes.append(has_held)
            yield given.word, has_held

    def tell(self, forecast: Forecast, project: str) -> Forecast:
        """The forecast with the hit rate of its word in the project."""
        outcomes = tuple(self._outcomes.get((forecast.word, project), ()))
        forecast.checked, forecast.held = len(outcomes), sum(outcomes)
        return forecast
