import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from extender.kube.client import Client
from extender.kube.election import Election, Leadership
from extender.kube.errors import NotFound, NotLeading
from extender.kube.resources import LEASES, NODE_POOLS
from tests.integration.kube.objects import pool
from tests.support.controlplane.handles import Api
from tests.support.faultproxy import FaultProxy

#: A fifth of the usual, so that a loss takes seconds, and a busy machine renews in time.
SHORT = {"duration_s": 3.0, "renew_s": 2.0, "retry_s": 0.2}
#: A Lease that does not run out while a test waits, and that its holder does not give up.
LONG = SHORT | {"duration_s": 120.0, "renew_s": 100.0}
NAME = "ballast-control"
PATIENCE_S = 90.0


@dataclass
class Candidate:
    """One process's part in the election, and when it led."""

    election: Election
    has_begun: asyncio.Event = field(default_factory=asyncio.Event)
    has_ended: asyncio.Event = field(default_factory=asyncio.Event)
    leaderships: list[Leadership] = field(default_factory=list)
    began_at: float = 0.0
    ended_at: float = 0.0
    task: "asyncio.Future[None] | None" = None

    def stop(self) -> None:
        """Leaves the election, as a process that is told to end."""
        assert self.task is not None
        self.task.cancel()

    async def lead(self, leadership: Leadership) -> None:
        """Leads until it is stopped."""
        clock = asyncio.get_running_loop().time
        self.leaderships.append(leadership)
        self.began_at = clock()
        self.has_begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended_at = clock()
            self.has_ended.set()

    async def begun(self) -> Leadership:
        async with asyncio.timeout(PATIENCE_S):
            await self.has_begun.wait()
        return self.leaderships[-1]

    async def ended(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self.has_ended.wait()


@asynccontextmanager
async def running(
    client: Client, namespace: str, identity: str, timing: Mapping[str, float] = SHORT
) -> AsyncIterator[Candidate]:
    """A candidate that takes part until the block is left."""
    candidate = Candidate(Election(client, namespace, NAME, identity, **timing))
    candidate.task = asyncio.ensure_future(candidate.election.run(candidate.lead))
    try:
        yield candidate
    finally:
        candidate.stop()
        await asyncio.wait([candidate.task])


async def lease(client: Client, namespace: str) -> tuple[str | None, int | None]:
    """Holder and transitions as the API server has them."""
    spec = (await client.get(LEASES, NAME, namespace)).spec
    return spec.holder_identity, spec.lease_transitions


async def test_who_goes_on_after_being_told_to_end_is_told_again(api: Api, client: Client) -> None:
    """A task group that fails while it is cancelled reports its errors and forgets the cancel."""
    told = 0

    async def lead(_: Leadership) -> None:
        nonlocal told
        while told < 2:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                told += 1

    election = Election(client, api.namespace, NAME, "a", **SHORT)
    task = asyncio.ensure_future(election.run(lead))
    async with asyncio.timeout(PATIENCE_S):
        while (await _holder(client, api.namespace)) != "a":
            await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.wait([task])
    assert told == 2
    assert await _holder(client, api.namespace) == ""


async def test_one_leads_and_the_other_follows_when_it_lets_go(api: Api, client: Client) -> None:
    async with running(client, api.namespace, "a", LONG) as first:
        before = await first.begun()
        async with running(client, api.namespace, "b", LONG) as second:
            await _renewed(client, api.namespace, before)
            assert await lease(client, api.namespace) == ("a", before.transitions)
            assert not second.has_begun.is_set()
            first.stop()
            after = await second.begun()
            assert first.ended_at < second.began_at
            assert after.transitions == before.transitions + 1


async def test_a_released_lease_is_taken_sooner_than_it_would_run_out(
    api: Api, client: Client
) -> None:
    async with running(client, api.namespace, "a", LONG) as first:
        before = await first.begun()
    assert await lease(client, api.namespace) == ("", before.transitions)
    async with running(client, api.namespace, "b", LONG) as second:
        after = await second.begun()
        assert after.transitions > before.transitions


async def test_a_leader_without_its_api_server_stops_before_another_starts(
    api: Api, client: Client, tmp_path: Path
) -> None:
    async with (
        FaultProxy(api.url) as proxy,
        await api.client(proxy.kubeconfig(api.kubeconfig, tmp_path)) as cut_off,
        running(cut_off, api.namespace, "a") as first,
    ):
        leadership = await first.begun()
        async with running(client, api.namespace, "b") as second:
            proxy.stall()
            await first.ended()
            with pytest.raises(NotLeading):
                leadership.check()
            assert not second.has_begun.is_set()
            successor = await second.begun()
            assert first.ended_at < second.began_at
            assert successor.transitions > leadership.transitions
            first.has_begun.clear()
            proxy.restore()
            assert await lease(client, api.namespace) == ("b", successor.transitions)
            assert not first.has_begun.is_set()


async def test_a_restart_under_the_same_name_leads_at_once_with_a_new_number(
    api: Api, client: Client, tmp_path: Path
) -> None:
    async with FaultProxy(api.url) as proxy:
        path = proxy.kubeconfig(api.kubeconfig, tmp_path)
        async with await api.client(path) as dying, running(dying, api.namespace, "a") as first:
            before = await first.begun()
            proxy.refuse()  # it can neither renew nor release: as good as killed
            async with running(client, api.namespace, "a") as second:
                after = await second.begun()
                assert after.transitions == before.transitions + 1


async def test_a_silent_holder_is_waited_for_by_our_clock_whatever_its_timestamps_say(
    api: Api, client: Client
) -> None:
    clock = asyncio.get_running_loop().time
    for renewed in ("2001-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"):
        spec = {
            "holderIdentity": "gone", "leaseDurationSeconds": 2, "leaseTransitions": 41,
            "renewTime": renewed, "acquireTime": renewed,
        }  # fmt: skip
        await client.create(LEASES, {"metadata": {"name": NAME}, "spec": spec}, api.namespace)
        started = clock()
        async with running(client, api.namespace, "a") as candidate:
            leadership = await candidate.begun()
            assert clock() - started >= 2
            assert leadership.transitions == 42
        await client.delete(LEASES, NAME, api.namespace)


async def test_a_lease_taken_by_another_ends_the_lead(api: Api, client: Client) -> None:
    async with running(client, api.namespace, "a") as candidate:
        leadership = await candidate.begun()
        theirs = {"spec": {"holderIdentity": "thief", "leaseTransitions": 99}}
        await client.merge_patch(LEASES, NAME, theirs, api.namespace)
        await candidate.ended()
        assert not leadership.is_leading
        assert await lease(client, api.namespace) == ("thief", 99)


async def test_a_deleted_lease_ends_the_lead_and_numbers_go_on_from_above(
    api: Api, client: Client
) -> None:
    async with running(client, api.namespace, "a") as candidate:
        before = await candidate.begun()
        candidate.has_begun.clear()
        await client.delete(LEASES, NAME, api.namespace)
        after = await candidate.begun()
        assert after.transitions > before.transitions
        assert not before.is_leading


async def test_the_lease_is_renewed_while_the_fence_stands(api: Api, client: Client) -> None:
    async with running(client, api.namespace, "a", LONG) as candidate:
        leadership = await candidate.begun()
        client.before_write = leadership.check
        await _renewed(client, api.namespace, leadership)
        await client.create(NODE_POOLS, pool("p"))
        leadership.end()
        with pytest.raises(NotLeading):
            await client.create(NODE_POOLS, pool("q"))


async def test_the_election_ends_when_leading_ends_and_the_lease_is_free(
    api: Api, client: Client
) -> None:
    async def lead(_: Leadership) -> None:
        return

    await Election(client, api.namespace, NAME, "a", **SHORT).run(lead)
    holder, _ = await lease(client, api.namespace)
    assert holder == ""


async def test_what_leading_raises_ends_the_election(api: Api, client: Client) -> None:
    async def lead(_: Leadership) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await Election(client, api.namespace, NAME, "a", **SHORT).run(lead)
    holder, _ = await lease(client, api.namespace)
    assert holder == ""


async def test_a_lead_that_notices_the_loss_itself_stands_again(api: Api, client: Client) -> None:
    n_leads = 0

    async def lead(leadership: Leadership) -> None:
        nonlocal n_leads
        n_leads += 1
        if n_leads == 1:
            leadership.end()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_write_fenced(leadership))

    async with asyncio.timeout(PATIENCE_S):
        await Election(client, api.namespace, NAME, "a", **SHORT).run(lead)
    assert n_leads == 2


async def _renewed(client: Client, namespace: str, leadership: Leadership) -> None:
    """Returns once the Lease was renewed twice under this leadership."""
    seen: set[str] = set()
    async with asyncio.timeout(PATIENCE_S):
        while len(seen) < 3:
            seen.add((await client.get(LEASES, NAME, namespace)).metadata.resource_version)
    leadership.check()


async def _write_fenced(leadership: Leadership) -> None:
    leadership.check()


async def _holder(client: Client, namespace: str) -> str | None:
    with suppress(NotFound):
        return (await lease(client, namespace))[0]
    return None
