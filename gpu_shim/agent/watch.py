"""Follows the cards' health: errors as they occur, and a check of every card every few seconds."""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Final

import structlog

from gpu_shim.agent.cards import Cards
from gpu_shim.agent.nvml import CardLost, Nvml, NvmlError

LOOK_S: Final = 5.0
#: Opening the driver again disturbs other callers, so not at every check.
REOPEN_S: Final = 60.0
_WAIT_MS: Final = 1000

_log = structlog.get_logger("gpu_shim.health")


@dataclass(slots=True)
class HealthWatch:
    """Updates the health of the cards. Driver calls run in threads: each may block for any time."""

    nvml: Nvml
    cards: Cards
    look_s: float = LOOK_S
    _may_reopen_at_s: float = 0.0

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_errors())
            tasks.create_task(self._look_around())

    async def _follow_errors(self) -> None:
        while True:
            try:
                event = await asyncio.to_thread(self.nvml.wait_xid, _WAIT_MS)
            except NvmlError as error:
                _log.warning("could not wait for errors of cards", error=str(error))
                await asyncio.sleep(self.look_s)
                continue
            if event is not None:
                uuid, number = event
                sentence = self.cards.health.saw_xid(uuid, number)
                _log.warning("a card had an error", card=uuid, xid=number, what=sentence)
                self.cards.publish()

    async def _look_around(self) -> None:
        while True:
            is_lost = False
            for device in list(self.cards.agent.devices):
                is_lost |= await self._look(device.uuid)
            now_s = asyncio.get_running_loop().time()
            if is_lost and now_s >= self._may_reopen_at_s:
                self._may_reopen_at_s = now_s + REOPEN_S
                await self._reopen()
            elif not is_lost:
                await self._find_again()
            self.cards.publish()
            await asyncio.sleep(self.look_s)

    async def _look(self, uuid: str) -> bool:
        """Check one card; return whether it is lost."""
        try:
            self.cards.health.looked(uuid, await asyncio.to_thread(self.nvml.look, uuid))
        except CardLost:
            self.cards.health.saw_silence(uuid)
            return True
        except NvmlError as error:
            # Not found: the card was missing when the driver was opened.
            if uuid not in self.cards.health.ill:
                _log.warning("could not look at a card", card=uuid, error=str(error))
            self.cards.health.saw_silence(uuid)
            return True
        return False

    async def _find_again(self) -> None:
        """List the cards again if one that was missing answers now."""
        known = {device.uuid for device in self.cards.found}
        if any(device.uuid not in known for device in self.cards.agent.devices):
            with contextlib.suppress(NvmlError):
                self.cards.found = await asyncio.to_thread(self.nvml.devices)

    async def _reopen(self) -> None:
        try:
            await asyncio.to_thread(self.nvml.reopen)
            self.cards.found = await asyncio.to_thread(self.nvml.devices)
        except NvmlError as error:
            _log.warning("could not open the driver anew", error=str(error))
