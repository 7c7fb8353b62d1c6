"""How programs end: by SIGTERM or SIGINT."""

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any


async def run_until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Run until the work is done; the first signal cancels it, and waits until it has ended."""
    task = asyncio.ensure_future(work)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
