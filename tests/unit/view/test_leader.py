"""When `ballast view` warns that no controller leads."""

import pytest

from extender.api.objects import Lease, LeaseSpec, ObjectMeta
from extender.kube.errors import KubeError, NotFound, Unavailable
from extender.view import leader
from extender.view.leader import LeaderWatch

WARNING = (
    "no Ballast controller has led since 2026-01-01T00:00:00Z:"
    " nothing starts and nothing is evicted until one does"
)


class Client:
    """Answers with `lease`, or raises `error`."""

    def __init__(self) -> None:
        self.lease = LeaseSpec(
            holder_identity="a", lease_duration_seconds=0, renew_time="2026-01-01T00:00:00.123456Z"
        )
        self.error: KubeError | None = None

    async def get(self, *_: object) -> Lease:
        if self.error is not None:
            raise self.error
        return Lease(ObjectMeta(), self.lease)


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def watch(client: Client, monkeypatch: pytest.MonkeyPatch) -> LeaderWatch:
    """A Lease is abandoned here if it is the same when read again."""
    monkeypatch.setattr(leader, "LEAST_SILENCE_S", 0.0)
    return LeaderWatch(client, "ballast-system")  # type: ignore[arg-type]


async def test_a_lease_that_is_not_renewed_has_no_leader(
    client: Client, watch: LeaderWatch
) -> None:
    await watch.look()
    assert watch.warning == ""
    await watch.look()
    assert watch.warning == WARNING
    client.error = Unavailable("no answer")
    await watch.look()
    assert watch.warning == WARNING
    client.error, client.lease = None, LeaseSpec(holder_identity="b", lease_duration_seconds=0)
    await watch.look()
    assert watch.warning == ""


async def test_a_lease_may_stay_the_same_for_twice_its_duration(
    client: Client, watch: LeaderWatch
) -> None:
    client.lease.lease_duration_seconds = 1000
    for _ in range(3):
        await watch.look()
    assert watch.warning == ""


async def test_without_a_lease_no_controller_has_ever_led(
    client: Client, watch: LeaderWatch
) -> None:
    client.error = NotFound("no Lease")
    await watch.look()
    assert watch.warning == ""
    await watch.look()
    assert watch.warning.startswith("no Ballast controller has led: nothing starts")
