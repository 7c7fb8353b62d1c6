"""Two candidates for one Lease, in virtual time: which leads, from when, and how long."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from unittest.mock import create_autospec

import msgspec
import pytest

from extender.api.objects import Lease, LeaseSpec, ObjectMeta
from extender.kube.client import Client
from extender.kube.election import Election, Leadership
from extender.kube.errors import Conflict
from extender.kube.transport import Call

pytestmark = pytest.mark.looptime


@dataclass
class Store:
    """The Lease behind the network edge: compare-and-swap, answers after `takes_s` seconds."""

    spec: LeaseSpec
    version: int = 1
    takes_s: float = 0.0
    is_silent: bool = False
    sent_at: list[float] = field(default_factory=list)
    led: list[Leadership] = field(default_factory=list)

    def write(self, spec: LeaseSpec) -> None:
        self.spec, self.version = spec, self.version + 1

    async def get(self, *_: object) -> Lease:
        return Lease(ObjectMeta(resource_version=str(self.version)), spec=self.spec)

    async def send(self, call: Call) -> bytes:
        body = msgspec.json.decode(msgspec.json.encode(call.body))
        self.sent_at.append(asyncio.get_running_loop().time())
        if self.is_silent:
            await asyncio.Event().wait()
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise Conflict("another was faster")
        self.write(msgspec.convert(body["spec"], LeaseSpec))
        body["metadata"]["resourceVersion"] = str(self.version)
        await asyncio.sleep(self.takes_s)
        return msgspec.json.encode(body)

    async def lead(self, leadership: Leadership) -> None:
        self.led.append(leadership)
        await asyncio.Event().wait()

    @asynccontextmanager
    async def contested(self) -> AsyncIterator[None]:
        """A candidate `me` takes part meanwhile."""
        client = create_autospec(Client, instance=True)
        client.get, client.send = self.get, self.send
        task = asyncio.ensure_future(Election(client, "ns", "lease", "me").run(self.lead))
        try:
            yield
        finally:
            self.is_silent = False
            task.cancel()
            await asyncio.wait([task])


def held(renewal: int, *, duration_s: int = 15) -> LeaseSpec:
    """The Lease in another's hands after so many renewals."""
    return LeaseSpec(
        holder_identity="other",
        lease_duration_seconds=duration_s,
        renew_time=f"2026-01-01T00:00:{renewal % 60:02}.000000Z",
        lease_transitions=7,
    )


async def test_a_holder_that_renews_is_never_replaced() -> None:
    store = Store(held(0))
    async with store.contested():
        for renewal in range(1, 30):
            await asyncio.sleep(2)
            store.write(held(renewal))
        assert store.sent_at == []
        assert store.led == []


async def test_a_silent_holder_is_replaced_after_its_own_lease_with_a_higher_number() -> None:
    store = Store(held(0, duration_s=40))
    async with store.contested():
        await asyncio.sleep(39.9)
        assert store.led == []
        await asyncio.sleep(5)
        assert [each.transitions for each in store.led] == [8]


async def test_a_slow_renewal_holds_no_longer_than_from_its_start() -> None:
    """Another may take the Lease from when the record was written, not from when we heard of it."""
    store = Store(LeaseSpec(), takes_s=3)
    async with store.contested():
        await asyncio.sleep(20)
        store.is_silent = True
        last = store.sent_at[-1]
        await asyncio.sleep(last + 10 - 0.1 - asyncio.get_running_loop().time())
        assert store.led[0].is_leading
        await asyncio.sleep(0.2)
        assert not store.led[0].is_leading
