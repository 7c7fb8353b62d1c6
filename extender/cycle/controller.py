"""`ballast control`: one leader turns watch events into plans, and plans into writes.

Every replica watches and keeps a warm model; only the leader's loop, `extender.cycle.term`, writes.
"""

import asyncio
import gc
import time
from typing import Final, NoReturn

import structlog

from extender.api.names import LEASE_NAME
from extender.cycle import metrics
from extender.cycle.replica import ControlOptions, Replica
from extender.cycle.term import Term
from extender.kube.client import Client
from extender.kube.election import Election, Leadership, terms_of
from extender.kube.served import watch_for_devices
from extender.usage.books import PERIOD_S
from extender.usage.integral import DAY_S
from extender.usage.meter import KEPT_S

#: Between two refreshes of the model in a replica that does not lead.
_WARM_EVERY_S: Final = 30.0

log = structlog.get_logger(__name__)


class Controller(Replica):
    """A replica that takes part in the election, and decides while it leads."""

    def __init__(self, reader: Client, writer: Client, options: ControlOptions) -> None:
        super().__init__(reader, writer, options)
        self._is_leading = False

    async def run(self) -> None:
        """Watch, take part in the election, and decide while leading; ends by cancellation, or with
        NewlyServed or Restored when it has to start anew."""
        options = self._options
        terms = terms_of(options.lease_duration_s)
        election = Election(self._reader, options.namespace, LEASE_NAME, options.identity, **terms)
        has_devices = await self.find_devices()
        async with asyncio.TaskGroup() as tasks:
            if not has_devices:
                tasks.create_task(watch_for_devices(self._reader))
            for reflector in self._reflectors:
                tasks.create_task(reflector.run())
            tasks.create_task(self._recorder.run())
            tasks.create_task(self._forget_use())
            await asyncio.gather(*(reflector.wait_synced() for reflector in self._reflectors))
            # Takes seconds in a large cluster, so it runs before there is a Lease to lose.
            self.warm_up()
            # The listed objects stay, so the collector need not walk them again in every cycle.
            gc.freeze()
            log.info("model filled", nodes=len(self.state.gpu_nodes))
            tasks.create_task(self.stay_warm())
            tasks.create_task(election.run(self.lead))

    def warm_up(self) -> None:
        """Refresh the model, so that a term begins with recent changes only.

        A failure is a bug or an unforeseen object. It ends no process: while this replica does not
        lead, nothing depends on it, and a term does what it still can.
        """
        try:
            self.state.snapshot(int(time.time()))
        except Exception:
            log.exception("the model was not refreshed")

    async def stay_warm(self) -> NoReturn:
        """Refresh the model while another replica leads, because then no cycle does."""
        while True:
            await asyncio.sleep(_WARM_EVERY_S)
            if not self._is_leading:
                self.warm_up()

    async def lead(self, leadership: Leadership) -> None:
        """Decide until the leadership ends; raises NotLeading then."""
        self._writer.before_write = leadership.check
        metrics.IS_LEADER.set(1)
        self._is_leading = True
        try:
            await Term(self, leadership.transitions).run()
        finally:
            self._is_leading = False
            metrics.end_term()

    async def _forget_use(self) -> None:
        """Forget use that no new leader will book. A leader forgets use when it has booked it, and
        gives up use that it could not book for a day."""
        while True:
            await asyncio.sleep(PERIOD_S)
            kept_s = DAY_S if self._is_leading else KEPT_S
            self.meter.forget(int(time.time()) - kept_s)
