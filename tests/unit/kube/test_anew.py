import asyncio

import pytest

from extender.kube.anew import run_anew
from extender.kube.errors import Restored, Unavailable


async def test_a_program_starts_anew_when_the_store_went_back() -> None:
    runs = []

    async def program() -> None:
        runs.append(1)
        if len(runs) < 3:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(fail(Restored("restored")))

    await run_anew(program)
    assert len(runs) == 3


async def test_other_errors_end_the_program() -> None:
    with pytest.raises(Unavailable):
        await run_anew(lambda: fail(Unavailable("away")))


async def fail(error: Exception) -> None:
    raise error
