"""The leader's writes of GpuUsages if some are refused, or if none succeeded for a long time."""

from typing import Any

import pytest
from msgspec import convert

from extender.api.kinds import GpuUsage
from extender.kube.errors import AlreadyExists, Unavailable
from extender.kube.wire import Page
from extender.usage.books import SETTLE_S, UsageBooks
from extender.usage.meter import UsageMeter
from tests.unit.usage.api_server import ApiServer
from tests.unit.usage.ledgers import revision, row

START_S = 1_790_856_000
HOUR_S = 3600
DAY_S = 86_400


class OneRefused:
    """An API server that refuses the record of project `a`, and stores all others."""

    def __init__(self) -> None:
        self.stored: list[str] = []

    async def pages(self, *_: Any, **__: Any) -> Any:
        yield Page([])

    async def list_all(self, *_: Any, **__: Any) -> Page[GpuUsage]:
        return Page([])

    async def create(self, _: object, body: dict[str, Any]) -> GpuUsage:
        if body["spec"]["name"] == "a":
            raise AlreadyExists("a")
        self.stored.append(body["spec"]["name"])
        return convert(
            {"metadata": body["metadata"] | {"resourceVersion": "1"}, "spec": body["spec"]},
            GpuUsage,
        )


async def test_a_record_that_is_refused_keeps_no_other_account_from_being_booked() -> None:
    meter, api = UsageMeter(lambda _: ""), OneRefused()
    books = UsageBooks(api, meter)  # type: ignore[arg-type]
    books.queues = {}
    await books.keep(START_S + SETTLE_S)  # the books begin here
    rows = (row("p", 500, START_S), row("q", 500, START_S, index=1, project="b"))
    meter.observe(revision(START_S, *rows), START_S)
    with pytest.raises(AlreadyExists):
        await books.keep(START_S + 60 + SETTLE_S)
    assert sorted(api.stored) == ["b", "default"]


async def test_use_of_the_month_is_not_known_before_the_records_are_read() -> None:
    meter, api = UsageMeter(lambda _: ""), OneRefused()
    books = UsageBooks(api, meter)  # type: ignore[arg-type]
    assert books.month_used(START_S) is None
    books.queues = {}
    await books.keep(START_S + SETTLE_S)
    assert books.month_used(START_S) == {}
    meter.observe(revision(START_S, row("q", 500, START_S, project="b")), START_S)
    await books.keep(START_S + 60 + SETTLE_S)
    assert books.month_used(START_S) == {("b", "default"): 500 * 60}


async def test_days_without_a_leader_are_counted_by_the_next_one() -> None:
    meter, api = UsageMeter(lambda _: ""), ApiServer([])
    books = _leader(api, meter)
    await books.keep(START_S + SETTLE_S)
    meter.observe(revision(START_S, row("p", 500, START_S)), START_S)
    await books.keep(START_S + 60 + SETTLE_S)
    await _leader(api, meter).keep(START_S + 60 + 3 * DAY_S + SETTLE_S)
    held = 500 * (60 + 3 * DAY_S)
    assert _held(api) == {"Project": held, "NodePool": held}
    assert len(api.stored) == 2 * 4


async def test_hours_without_a_write_are_counted_although_the_next_write_fails() -> None:
    losses: list[str] = []
    meter, api = UsageMeter(lambda _: ""), ApiServer(losses)
    books = _leader(api, meter)
    await books.keep(START_S + SETTLE_S)
    meter.observe(revision(START_S, row("p", 500, START_S)), START_S)
    await books.keep(START_S + 60 + SETTLE_S)
    later_s = START_S + 5 * HOUR_S
    losses.append("before")
    with pytest.raises(Unavailable) as failure:
        await books.keep(later_s + SETTLE_S)
    books._fail(failure.value)
    await books.keep(later_s + 60 + SETTLE_S)
    held = 500 * (5 * HOUR_S + 60)
    assert _held(api) == {"Project": held, "NodePool": held}


def _leader(api: ApiServer, meter: UsageMeter) -> UsageBooks:
    books = UsageBooks(api, meter)  # type: ignore[arg-type]
    books.queues = {}
    return books


def _held(api: ApiServer) -> dict[str, int]:
    """Milli-GPU-seconds by the kind of account."""
    sums: dict[str, int] = {}
    for each in api.stored.values():
        milli_s = sum(sum(line.held) for line in each.spec.lines)
        sums[each.spec.account] = sums.get(each.spec.account, 0) + milli_s
    return sums
