"""Many small writes side by side, of which none may hold up the others."""

import asyncio
from collections.abc import Awaitable, Iterable

import structlog

from extender.kube.errors import KubeError, NotFound, NotLeading

log = structlog.get_logger(__name__)


async def write_all(writes: Iterable[Awaitable[None]], *, at_once: int, what: str) -> bool:
    """Do all of them, `at_once` at a time; returns whether all went well.

    What is gone meanwhile counts as well done: the watch will say so. Other failures are logged as
    about `what`. Raises NotLeading, in a group, when this process may not write any more.
    """
    limit = asyncio.Semaphore(at_once)

    async def one(write: Awaitable[None]) -> bool:
        async with limit:
            try:
                await write
            except NotLeading:
                raise
            except NotFound:
                pass
            except KubeError as error:
                log.warning("not written", what=what, error=str(error))
                return False
        return True

    async with asyncio.TaskGroup() as tasks:
        started = [tasks.create_task(one(write)) for write in writes]
    return all(task.result() for task in started)
