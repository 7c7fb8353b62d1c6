"""The story: three projects borrow what the fourth leaves, then its owner returns."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from tests.support.controlplane.admin import AdminApi
from tests.support.demo.board import Board
from tests.support.demo.screen import Screen, gpus
from tests.support.demo.trace import Workload, workload_object

OWNER: Final = "search"
#: The trace's arrivals are spread over 20 s; this much faster here.
SPEED: Final = 2.0
#: Nothing bound for this long: what could start has started.
QUIET_S: Final = 3.0
BORROW_S: Final = 60.0
#: Waiting pods have shapes, above all in CPU, that the last cards' nodes have no room for.
FULL: Final = 0.88
RECLAIM_S: Final = 75.0
WRITERS: Final = 8
#: An owner has its quota back when less than this is missing: what waits are whole pods.
MISSING_MILLI: Final = 1000


@dataclass(slots=True)
class Outcome:
    """What is told at the end. None: it did not happen in time."""

    submitted: int = 0
    borrowed_milli: int = 0
    reclaim_s: float | None = None
    notes: list[str] = field(default_factory=list)


class Story:
    """Submits workloads and waits for what must come of them."""

    def __init__(self, admin: AdminApi, board: Board, screen: Screen) -> None:
        self._admin = admin
        self._board = board
        self._screen = screen
        self._writers = asyncio.Semaphore(WRITERS)

    async def tell(self, workloads: list[Workload]) -> Outcome:
        """Both phases."""
        outcome = Outcome(submitted=sum(each.size for each in workloads))
        others = [each for each in workloads if each.project != OWNER]
        await self._borrow(others, outcome)
        await self._return([each for each in workloads if each.project == OWNER], outcome)
        return outcome

    async def _borrow(self, workloads: list[Workload], outcome: Outcome) -> None:
        self._screen.title = f"1. {OWNER} is away: others borrow its quota"
        self._screen.say(
            f"{sum(each.size for each in workloads)} pods of {len(workloads)} workloads arrive in"
            f" three projects; {OWNER} is away"
        )
        await self._submit(workloads)
        if not await self._until(self._is_full, BORROW_S):
            outcome.notes.append(f"the cluster was not full and at rest after {BORROW_S:.0f} s")
        quota = sum(self._board.world.projects[OWNER].quota.values())
        others = sum(
            max(0, self._board.allocated(name) - sum(queue.quota.values()))
            for name, queue in self._board.world.projects.items()
            if name != OWNER
        )
        outcome.borrowed_milli = others
        self._screen.show()
        self._screen.say(
            f"the three hold {gpus(others)} GPUs over their quotas; {OWNER}'s quota of"
            f" {gpus(quota)} is unused"
        )

    async def _return(self, workloads: list[Workload], outcome: Outcome) -> None:
        self._screen.title = f"2. the owner returns: {OWNER} gets its quota back"
        quota = sum(self._board.world.projects[OWNER].quota.values())
        wanted = min(quota, sum(each.total_milli for each in workloads))
        self._screen.say(f"{OWNER} returns with {sum(each.size for each in workloads)} pods")
        started_s = time.monotonic()
        arriving = asyncio.create_task(self._submit(workloads))
        try:
            is_back = await self._until(
                lambda: self._board.allocated(OWNER) > wanted - MISSING_MILLI, RECLAIM_S
            )
            took_s = time.monotonic() - started_s
            await arriving
        finally:
            arriving.cancel()
        if is_back:
            outcome.reclaim_s = took_s
            self._screen.say(
                f"{OWNER} holds {gpus(self._board.allocated(OWNER))} GPUs of a quota of"
                f" {gpus(quota)}, {took_s:.1f} s after its first pod came"
            )
        else:
            outcome.notes.append(
                f"{OWNER} held {gpus(self._board.allocated(OWNER))} of {gpus(wanted)} GPUs"
                f" after {RECLAIM_S:.0f} s"
            )
        await self._until(self._is_quiet, BORROW_S / 2)
        self._screen.show()

    async def _submit(self, workloads: Iterable[Workload]) -> None:
        """Create the workloads' owners at their times."""
        started_s = time.monotonic()
        async with asyncio.TaskGroup() as creations:
            for workload in workloads:
                due_s = started_s + workload.at_ms / 1000 / SPEED
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                creations.create_task(self._create(workload))

    async def _create(self, workload: Workload) -> None:
        path, body = workload_object(workload)
        async with self._writers:
            await asyncio.to_thread(self._admin.post, path, body)

    def _is_full(self) -> bool:
        held = sum(self._board.allocated(name) for name in self._board.world.projects)
        return held >= FULL * self._board.capacity() and self._is_quiet()

    def _is_quiet(self) -> bool:
        last_s = max(self._board.bound_s.values(), default=time.monotonic())
        return time.monotonic() - last_s > QUIET_S

    async def _until(self, is_met: Callable[[], bool], timeout_s: float) -> bool:
        deadline_s = time.monotonic() + timeout_s
        while not is_met():
            if time.monotonic() > deadline_s:
                return False
            await asyncio.sleep(0.1)
        return True
