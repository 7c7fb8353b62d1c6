"""Orderly exit of a program on SIGTERM or SIGINT."""

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any


async def run_until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` to its end; SIGTERM or SIGINT cancels it first. Returns once it has ended."""
    task = asyncio.ensure_future(work)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
