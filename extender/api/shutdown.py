"""Orderly end of a program on SIGTERM or SIGINT, and of a task."""

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any, Final

_CANCEL_AGAIN_S: Final = 0.5


async def run_until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` to its end; SIGTERM or SIGINT cancels it first. Returns once it has ended."""
    task = asyncio.ensure_future(work)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def end_task(task: "asyncio.Future[None] | None") -> None:
    """Cancel the task, if any, and wait until it has ended; the caller reads its exception.

    Cancelling once is not always enough: if children of a task group fail while it is being
    cancelled, it reports only their errors (until Python 3.13), and code that handles them goes on.
    """
    while task is not None and not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=_CANCEL_AGAIN_S)
