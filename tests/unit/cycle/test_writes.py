"""Many small writes: failures, their reports, and writes that were not begun."""

import asyncio
import inspect
from contextlib import suppress

import pytest
from structlog.testing import capture_logs

from extender.cycle.writes import write_all
from extender.kube.errors import KubeError, NotFound, NotLeading


async def done() -> None:
    pass


async def gone() -> None:
    raise NotFound("gone")


async def failing() -> None:
    raise KubeError("no")


async def not_leading() -> None:
    raise NotLeading("another leads")


async def test_what_is_gone_is_done_and_what_fails_is_reported() -> None:
    assert await write_all([done(), gone()], at_once=1, what="status")
    assert not await write_all([failing(), done()], at_once=1, what="status")


async def test_writes_that_fail_alike_are_reported_in_one_line() -> None:
    with capture_logs() as logs:
        await write_all([failing() for _ in range(1000)], at_once=9, what="status")
    (line,) = logs
    assert (line["n_failed"], line["error"]) == (1000, "no")


async def test_writes_that_were_not_begun_are_closed() -> None:
    writes = [not_leading(), done(), done()]
    with pytest.raises(ExceptionGroup):
        await write_all(writes, at_once=1, what="status")
    assert {inspect.getcoroutinestate(each) for each in writes} == {inspect.CORO_CLOSED}


async def test_writes_are_closed_when_all_is_cancelled() -> None:
    writes = [done() for _ in range(3)]
    task = asyncio.create_task(write_all(writes, at_once=1, what="status"))
    await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert {inspect.getcoroutinestate(each) for each in writes} == {inspect.CORO_CLOSED}
