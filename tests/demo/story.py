"""The story: three projects borrow the fourth's idle GPUs, until the fourth needs them again.

Two more chapters follow on the full cluster (`room`).
"""

import asyncio
import time
from typing import Final

from tests.demo.board import Board
from tests.demo.hand import Hand
from tests.demo.outcome import Outcome
from tests.demo.room import Room
from tests.demo.screen import Screen, gpus
from tests.demo.trace import Workload
from tests.support.controlplane.admin import AdminApi

OWNER: Final = "search"
#: Speed-up of the trace's arrivals, which are spread over 20 s.
SPEED: Final = 2.0
#: If no pod is bound for this long, all workloads that could start have started.
QUIET_S: Final = 3.0
BORROW_S: Final = 60.0
#: Part of the GPUs that counts as a full cluster: pending pods, above all by their CPU requests, do
#: not fit on the nodes with the last free cards.
FULL: Final = 0.88
RECLAIM_S: Final = 75.0


class Story:
    """Submits workloads and waits for the expected effects."""

    def __init__(self, admin: AdminApi, board: Board, screen: Screen) -> None:
        self._board = board
        self._screen = screen
        self._hand = Hand(admin, SPEED)
        self._room = Room(self._hand, board, screen)

    async def tell(self, workloads: list[Workload]) -> Outcome:
        """Run all chapters."""
        outcome = Outcome(submitted=sum(each.size for each in workloads))
        others = [each for each in workloads if each.project != OWNER]
        await self._borrow(others, outcome)
        await self._return([each for each in workloads if each.project == OWNER], outcome)
        await self._room.preempt(outcome)
        await self._room.move(outcome)
        outcome.n_jobs, outcome.failed_jobs = await self._hand.failed_jobs()
        outcome.notes += [f"Job {failed}" for failed in outcome.failed_jobs]
        return outcome

    async def _borrow(self, workloads: list[Workload], outcome: Outcome) -> None:
        self._screen.title = f"1. {OWNER} is away: others borrow its quota"
        self._screen.say(
            f"{sum(each.size for each in workloads)} pods of {len(workloads)} workloads arrive in"
            f" three projects; {OWNER} is away"
        )
        await self._hand.submit(workloads)
        if not await self._hand.until(self._is_full, BORROW_S):
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
        self._screen.say(f"{OWNER} returns with {sum(each.size for each in workloads)} pods")
        started_s = time.monotonic()
        arriving = asyncio.create_task(self._hand.submit(workloads))
        try:
            is_back = await self._hand.until(
                lambda: arriving.done() and self._has_its_quota(quota), RECLAIM_S
            )
            took_s = time.monotonic() - started_s
            await arriving
        finally:
            arriving.cancel()
        if is_back:
            outcome.reclaim_s = took_s
            self._screen.say(
                f"{OWNER} holds {gpus(self._board.allocated(OWNER))} GPUs of a quota of"
                f" {gpus(quota)}, {took_s:.1f} s after its first pod came; nothing that waits fits"
                " into the rest"
            )
        else:
            outcome.notes.append(
                f"{OWNER} held {gpus(self._board.allocated(OWNER))} of {gpus(quota)} GPUs"
                f" after {RECLAIM_S:.0f} s; of its pods wait: {self._board.why(OWNER)}"
            )
        await self._hand.until(self._is_quiet, BORROW_S / 2)
        self._screen.show()

    def _has_its_quota(self, quota: int) -> bool:
        """Whether no pending workload of the owner fits its quota."""
        smallest = self._board.smallest_wait(OWNER)
        return smallest is None or self._board.allocated(OWNER) + smallest > quota

    def _is_full(self) -> bool:
        held = sum(self._board.allocated(name) for name in self._board.world.projects)
        return held >= FULL * self._board.capacity() and self._is_quiet()

    def _is_quiet(self) -> bool:
        last_s = max(self._board.bound_s.values(), default=time.monotonic())
        return time.monotonic() - last_s > QUIET_S
