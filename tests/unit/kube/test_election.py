import asyncio
from unittest.mock import create_autospec

import msgspec
import pytest

from extender.api.objects import Lease, ObjectMeta
from extender.kube.client import Client
from extender.kube.election import Election, ElectionTiming, Leadership
from extender.kube.errors import Conflict, NotLeading
from extender.kube.transport import Call

pytestmark = pytest.mark.looptime


async def test_leadership_ends_when_it_was_not_renewed_in_time() -> None:
    clock = asyncio.get_running_loop().time
    leadership = Leadership(7, clock(), renew_s=10)
    await asyncio.sleep(9.9)
    leadership.check()
    await asyncio.sleep(0.2)
    with pytest.raises(NotLeading):
        leadership.check()


async def test_a_renewal_counts_from_its_start_not_from_its_answer() -> None:
    clock = asyncio.get_running_loop().time
    leadership = Leadership(7, clock(), renew_s=10)
    await asyncio.sleep(2)
    started = clock()
    await asyncio.sleep(4)
    leadership.extend(started)
    assert leadership.left_s == pytest.approx(6)


async def test_an_ended_leadership_never_comes_back() -> None:
    clock = asyncio.get_running_loop().time
    leadership = Leadership(7, clock(), renew_s=10)
    leadership.end()
    leadership.extend(clock())
    assert not leadership.is_leading


@pytest.mark.parametrize("terms", [(15, 15, 2), (15, 10, 10), (10, 15, 2), (15, 10, 0)])
def test_terms_under_which_two_could_lead_are_refused(terms: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="retry_s < renew_s < duration_s"):
        ElectionTiming(*terms)


def test_two_renewals_fit_before_the_hold_ends() -> None:
    terms = ElectionTiming()
    assert terms.retry_s + 2 * terms.request_s <= terms.renew_s


async def test_a_lease_that_went_back_in_time_ends_the_lead() -> None:
    """It was restored from a backup: it names us, and is older than what we wrote."""
    written: list[Lease] = []
    is_restored = False

    async def send(call: Call) -> bytes:
        if is_restored:
            raise Conflict("written over an older version")
        body = msgspec.json.decode(msgspec.json.encode(call.body))
        body["metadata"]["resourceVersion"] = str(100 + len(written))
        written.append(msgspec.convert(body, Lease))
        return msgspec.json.encode(body)

    async def get(*_: object) -> Lease:
        return written[0] if written else Lease(ObjectMeta(resource_version="99"))

    led: list[Leadership] = []

    async def lead(leadership: Leadership) -> None:
        led.append(leadership)
        await asyncio.Event().wait()

    client = create_autospec(Client, instance=True)
    client.get, client.send = get, send
    task = asyncio.ensure_future(Election(client, "ns", "lease", "me").run(lead))
    await asyncio.sleep(20)
    assert len(written) > 3
    assert [each.is_leading for each in led] == [True]
    is_restored = True
    await asyncio.sleep(4)
    assert not led[0].is_leading
    task.cancel()
    await asyncio.wait([task])
