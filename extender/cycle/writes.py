"""Many small writes side by side, of which none may hold up the others."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

import structlog

from extender.kube.errors import KubeError, NotFound, NotLeading

log = structlog.get_logger(__name__)


async def write_all(
    writes: Iterable[Coroutine[Any, Any, None]], *, what: str, at_once: int = 16
) -> bool:
    """Do all of them, `at_once` at a time; returns whether all went well.

    What is gone meanwhile counts as well done: the watch will say so. Other failures are logged as
    about `what`, in one line with the first error. Raises NotLeading, in a group, when this process
    may not write any more. A write that was not begun when this ends, because of that or of a
    cancellation, is closed.
    """
    todo = list(writes)
    limit = asyncio.Semaphore(at_once)
    failed: list[KubeError] = []

    async def one(write: Coroutine[Any, Any, None]) -> None:
        async with limit:
            try:
                await write
            except NotLeading:
                raise
            except NotFound:
                pass
            except KubeError as error:
                failed.append(error)

    try:
        async with asyncio.TaskGroup() as tasks:
            for write in todo:
                tasks.create_task(one(write))
    finally:
        for write in todo:
            write.close()
    if failed:
        log.warning("not written", what=what, n_failed=len(failed), error=str(failed[0]))
    return not failed
