"""The leader's writes of GpuUsages if the API server refuses some of them."""

from typing import Any

import pytest
from msgspec import convert

from extender.api.kinds import GpuUsage
from extender.kube.errors import AlreadyExists
from extender.kube.wire import Page
from extender.usage.books import SETTLE_S, UsageBooks
from extender.usage.meter import UsageMeter
from tests.unit.usage.ledgers import revision, row

START_S = 1_790_856_000


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
