"""Whether a controller leads: without one, nothing that an answer expects will happen."""

import asyncio
from typing import Final, NoReturn

import structlog

from extender.api.names import LEASE_NAME
from extender.api.objects import LeaseSpec
from extender.kube.client import Client
from extender.kube.errors import KubeError, NotFound
from extender.kube.resources import LEASES

POLL_S: Final = 5.0
#: If a Lease does not change for twice its duration, and at least for this long, no controller
#: leads: a replica on standby would have taken it.
LEAST_SILENCE_S: Final = 10.0
#: Length of a time without its fraction and zone, which is UTC.
_SECONDS: Final = len("2026-01-01T00:00:00")

_log = structlog.get_logger(__name__)


class LeaderWatch:
    """Reads the controllers' Lease. As in the election, only its changes count, not its times."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        #: The Lease when it last changed, and since when on our clock; None if there is none.
        self._seen: LeaseSpec | None = None
        self._seen_at: float | None = None
        #: A sentence if no controller leads; empty while one does.
        self.warning = ""

    async def follow(self) -> NoReturn:
        """Read the Lease every `POLL_S` seconds until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(POLL_S)

    async def look(self) -> None:
        """Read the Lease once; if that fails, what is known remains."""
        try:
            found = (await self._client.get(LEASES, LEASE_NAME, self._namespace)).spec
        except NotFound:
            found = None
        except KubeError as error:
            _log.warning("could not read the Lease of the controllers", error=str(error))
            return
        now = asyncio.get_running_loop().time()
        if self._seen_at is None or found != self._seen:
            self._seen, self._seen_at, self.warning = found, now, ""
        duration_s = (found and found.lease_duration_seconds) or 0
        if now - self._seen_at <= max(LEAST_SILENCE_S, 2 * duration_s):
            return
        since = f" since {found.renew_time[:_SECONDS]}Z" if found and found.renew_time else ""
        self.warning = (
            f"no Ballast controller has led{since}: nothing starts and nothing is evicted until one"
            " does"
        )
