"""The usage books, kept by the leader: GpuUsage objects, one per account and day.

An account is a project or a node pool. A record states up to which second it counts its account,
and is written by compare-and-swap, so nothing is counted twice: whatever happened to an earlier
write or leader, counting continues from the time in the stored record.
"""

import asyncio
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog
from msgspec import to_builtins
from prometheus_client import Counter, Gauge

from extender.api.kinds import GpuUsage
from extender.api.months import month_of
from extender.api.names import LABEL_DAY, LABEL_MONTH
from extender.kube.client import Client
from extender.kube.errors import KubeError, NotFound, NotLeading
from extender.kube.resources import USAGES
from extender.state.model import QueueView
from extender.usage.integral import (
    DAY_S,
    HOUR_S,
    Counted,
    count_holds,
    count_losses,
    count_over_quota,
    day_of,
)
from extender.usage.meter import KEPT_S, Hold, Loss, UsageMeter
from extender.usage.month_use import MonthUse
from extender.usage.record import NODE_POOL, PROJECT, Account, empty_record, extended, record_name

#: Seconds between two bookings.
PERIOD_S: Final = 60.0
#: Changes of the last seconds are left for the next booking: the watch may lag.
SETTLE_S: Final = 10
#: Days for which records are kept.
KEPT_DAYS: Final = 400
#: Earlier months in which records to delete are looked for.
_PRUNED_MONTHS: Final = 3
#: How far before the last booking an account without a record is counted.
_REACH_S: Final = 3600

_COUNTED_TO = Gauge(
    "ballast_usage_counted_to_timestamp_seconds",
    "Time up to which the leader has written usage records; 0 elsewhere.",
)
_FAILURES = Counter(
    "ballast_usage_failures", "Writes of usage records that failed in part or as a whole."
)

log = structlog.get_logger(__name__)


class UsageBooks:
    """The books during one term of leadership."""

    def __init__(self, client: Client, meter: UsageMeter, period_s: float = PERIOD_S) -> None:
        self._client = client
        self._meter = meter
        self._period_s = period_s
        self._records: dict[str, GpuUsage] | None = None
        self._stamps: dict[Account, int] = {}
        #: None until the records were first read.
        self._floor_s: int | None = None
        self._pruned_on = ""
        #: None until the month's records were read.
        self._month: MonthUse | None = None
        #: Queues of the last cycle; nothing is booked before the first one.
        self.queues: Mapping[str, QueueView] | None = None

    def month_used(self, now_s: int) -> dict[tuple[str, str], int] | None:
        """This month's use by project and node pool, in milli-GPU-seconds; None if not yet read."""
        return None if self._month is None else self._month.used(now_s)

    async def run(self) -> None:
        """Book while this process leads; ends by cancellation."""
        try:
            while True:
                try:
                    await self.keep(int(time.time()))
                except NotLeading:
                    self._records = None  # the election cancels this task
                except KubeError as error:
                    self._fail(error)
                except Exception:
                    self._records = None
                    _FAILURES.inc()
                    log.exception("booking broke")
                await asyncio.sleep(1.0 if self.queues is None else self._period_s)
        finally:
            _COUNTED_TO.set(0)

    async def keep(self, now_s: int) -> None:
        """Write what was held since the last booking. Raises KubeError."""
        if self.queues is None:
            return
        until_s = now_s - SETTLE_S
        if self._records is None:
            await self._load(until_s)
        counted = await asyncio.to_thread(self._count, tuple(self._meter.holds()), until_s)
        failed: KubeError | None = None
        for account, figures in counted.items():
            try:
                await self._write(account, figures, until_s)
            except NotLeading:
                raise
            except KubeError as error:
                failed = error  # the other accounts are booked all the same
        if failed is not None:
            raise failed
        # Accounts that were not written held nothing.
        self._floor_s = until_s
        self._meter.forget(now_s - KEPT_S)
        _COUNTED_TO.set(until_s)
        today = day_of(now_s)
        if self._pruned_on != today:
            await self._prune(now_s)
            self._pruned_on = today

    def _fail(self, error: KubeError) -> None:
        """Read the records again before the next booking: the stored state is uncertain."""
        self._records = None
        _FAILURES.inc()
        log.warning("usage was not written", error=str(error))

    async def _load(self, until_s: int) -> None:
        """Read up to when each account was counted. Without any record the books begin now."""
        records: dict[str, GpuUsage] = {}
        stamps: dict[Account, int] = {}
        month = MonthUse()
        selector = f"{LABEL_MONTH} in ({_month_before(until_s, 1)},{day_of(until_s)[:7]})"
        async for page in self._client.pages(USAGES, label_selector=selector):
            for record in page.items:
                spec = record.spec
                account = spec.account, spec.name
                stamps[account] = max(stamps.get(account, 0), spec.counted_to)
                month.note(spec)
                records[record.metadata.name] = record
            # Names begin with the day and pages are in the order of names, so few records are kept.
            oldest = day_of(self._floor_after(stamps, until_s))
            records = {name: each for name, each in records.items() if each.spec.day >= oldest}
        month.forget_before(month_of(until_s))
        self._records, self._stamps, self._month = records, stamps, month
        self._floor_s = self._floor_after(stamps, until_s)

    def _floor_after(self, stamps: Mapping[Account, int], until_s: int) -> int:
        """The time before which nothing is counted: no later than the last complete booking."""
        floor_s = max(stamps.values()) - _REACH_S if stamps else until_s
        return floor_s if self._floor_s is None else min(floor_s, self._floor_s)

    def _count(self, holds: tuple[Hold, ...], until_s: int) -> dict[Account, Counted]:
        """What each account held since its last record; accounts that held nothing are left out."""
        self._meter.name_users(holds)
        held: dict[Account, list[Hold]] = {}
        for hold in holds:
            for account in _accounts_of(hold):
                held.setdefault(account, []).append(hold)
        lost: dict[Account, list[Loss]] = {}
        for loss in self._meter.losses():
            for account in _accounts_of(loss.hold):
                lost.setdefault(account, []).append(loss)
        found: dict[Account, Counted] = {}
        for account, of_account in held.items():
            counted = self._figures(account, of_account, lost.get(account, []), until_s)
            if counted.hours():
                found[account] = counted
        return found

    def _figures(
        self, account: Account, holds: list[Hold], losses: list[Loss], until_s: int
    ) -> Counted:
        start_s = max(self._stamps.get(account, 0), self._floor_s or 0)
        counted = Counted(
            held=count_holds(holds, start_s, until_s), lost=count_losses(losses, start_s, until_s)
        )
        kind, name = account
        if kind == PROJECT:
            queue = (self.queues or {}).get(name)
            quotas = {pool: of.gpu.quota for pool, of in queue.pools.items()} if queue else {}
            counted.over_quota = count_over_quota(holds, quotas, start_s, until_s)
        return counted

    async def _write(self, account: Account, counted: Counted, until_s: int) -> None:
        """Write one record for each day since the last booking, in order."""
        assert self._records is not None
        for day in sorted({day_of(hour * HOUR_S) for hour in counted.hours()}):
            name = record_name(day, account)
            record = self._records.get(name)
            spec = extended(record.spec if record else empty_record(day, account), counted, until_s)
            body: dict[str, object] = {"spec": to_builtins(spec)}
            if record is None:
                labels = {LABEL_DAY: day, LABEL_MONTH: day[:7]}
                body["metadata"] = {"name": name, "labels": labels}
                written = await self._client.create(USAGES, body)
            else:
                body["metadata"] = {"resourceVersion": record.metadata.resource_version}
                written = await self._client.merge_patch(USAGES, name, body)
            self._records[name] = written
            self._stamps[account] = written.spec.counted_to
            if self._month is not None:
                self._month.note(written.spec)

    async def _prune(self, now_s: int) -> None:
        """Delete the records of days before the retention period."""
        first_kept = day_of(now_s - KEPT_DAYS * DAY_S)
        then_s = now_s - KEPT_DAYS * DAY_S
        months = ",".join(_month_before(then_s, back) for back in range(_PRUNED_MONTHS + 1))
        selector = f"{LABEL_MONTH} in ({months})"
        listed = await self._client.list_all(USAGES, label_selector=selector)
        for record in listed.items:
            if record.spec.day < first_kept:
                try:
                    await self._client.delete(USAGES, record.metadata.name, uid=record.metadata.uid)
                except NotFound:
                    continue
        if self._month is not None:
            self._month.forget_before(month_of(now_s))
        recent = day_of(now_s - 2 * DAY_S)
        records = self._records or {}
        self._records = {name: each for name, each in records.items() if each.spec.day >= recent}


def _accounts_of(hold: Hold) -> tuple[Account, Account]:
    return (PROJECT, hold.project), (NODE_POOL, hold.node_pool)


def _month_before(unix_s: int, n_months: int) -> str:
    """The month `n_months` before this time's month, as 2026-10."""
    first = datetime.fromtimestamp(unix_s, UTC).replace(day=1)
    for _ in range(n_months):
        first = (first - timedelta(days=1)).replace(day=1)
    return first.strftime("%Y-%m")
