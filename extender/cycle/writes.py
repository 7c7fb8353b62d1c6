"""Many small writes in parallel, none of which delays the others."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

import structlog

from extender.kube.errors import KubeError, NotFound, NotLeading

log = structlog.get_logger(__name__)


async def write_all(
    writes: Iterable[Coroutine[Any, Any, None]], *, what: str, at_once: int = 16
) -> bool:
    """Run all writes, `at_once` at a time; returns whether all succeeded.

    A write to a deleted object counts as a success, because the watch will report the deletion.
    Other failures are logged as about `what`, in one line with the first error. Raises NotLeading,
    in a group, if this process may no longer write. Writes not begun when this ends, by that or by
    a cancellation, are closed.
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
