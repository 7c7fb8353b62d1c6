import asyncio
import gc
import weakref

import pytest

from extender.kube.anew import run_anew
from extender.kube.errors import KubeError, NewlyServed, Restored, Unavailable


class Model:
    """An object in a cycle of references, as a model with bound methods is."""

    def __init__(self) -> None:
        self.own = self


@pytest.mark.parametrize("kind", [Restored, NewlyServed])
async def test_a_program_starts_anew_when_the_store_went_back_or_serves_more(
    kind: type[KubeError],
) -> None:
    runs = []

    async def program() -> None:
        runs.append(1)
        if len(runs) < 3:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(fail(kind("")))

    await run_anew(program)
    assert len(runs) == 3


async def test_what_the_program_froze_is_collected_when_it_starts_anew() -> None:
    """Else a second model of the cluster would stay in memory until the process ends."""
    left: list[weakref.ref[Model]] = []
    kept: list[bool] = []

    async def program() -> None:
        if left:
            gc.collect()
            kept.append(left[0]() is not None)
            return
        left.append(weakref.ref(Model()))
        gc.freeze()
        raise Restored("restored")

    await run_anew(program)
    assert kept == [False]


async def test_other_errors_end_the_program() -> None:
    with pytest.raises(Unavailable):
        await run_anew(lambda: fail(Unavailable("away")))


async def fail(error: Exception) -> None:
    raise error
