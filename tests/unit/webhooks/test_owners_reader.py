"""How owners are read, how often, and what happens if reading fails."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from extender.kube.errors import KubeError, NotFound, RequestRefused, Throttled, Unavailable
from tests.support.owners import NAMESPACE, Shelf, unread
from webhooks.owners.reader import MAX_KEPT, MAX_READS, OwnerReader, ReaderTiming
from webhooks.owners.table import BY_KIND
from webhooks.owners.trace import Asked

pytestmark = pytest.mark.looptime

JOB = BY_KIND["batch", "Job"]
PATH = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Failing:
    """An API server that answers with an error."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.n_asked = 0

    async def get(self, _path: str) -> bytes:
        self.n_asked += 1
        raise self.error


def asked(name: str = "j", uid: str = "", asker: str = "") -> Asked:
    return Asked(JOB, "v1", NAMESPACE, name, uid or f"uid-{name}", asker or f"uid-{name}")


def a_shelf(*names: str) -> Shelf:
    return Shelf(*(unread("batch/v1", "Job", name) for name in names))


async def test_pods_of_one_owner_are_one_read() -> None:
    shelf = a_shelf("j")
    reader = OwnerReader(shelf.get)
    answers = await asyncio.gather(*(reader.read(asked()) for _ in range(100)))
    assert all(owner is not None for owner in answers)
    assert await reader.read(asked()) is answers[0]
    assert shelf.asked == [f"{PATH}j"]


async def test_answer_is_asked_for_again_when_it_is_old() -> None:
    shelf, clock = a_shelf("j"), Clock()
    reader = OwnerReader(shelf.get, clock=clock)
    await reader.read(asked())
    clock.now += ReaderTiming().keep_s
    await reader.read(asked())
    assert len(shelf.asked) == 2


async def test_owner_made_again_under_its_name_is_read_again() -> None:
    shelf = a_shelf("j")
    reader = OwnerReader(shelf.get)
    await reader.read(asked(uid="uid-j"))
    shelf.put(unread("batch/v1", "Job", "j") | {"metadata": _named("j", "new")})
    found = await reader.read(asked(uid="new"))
    assert found is not None
    assert found.metadata.uid == "new"
    assert await reader.read(asked(uid="other")) is None


def _named(name: str, uid: str) -> dict[str, str]:
    return {"name": name, "namespace": NAMESPACE, "uid": uid}


@pytest.mark.parametrize(
    "error",
    [Unavailable("503"), Throttled("429"), TimeoutError()],
    ids=lambda error: type(error).__name__,
)
async def test_api_server_in_trouble_is_left_alone_for_a_while(error: Exception) -> None:
    failing, clock = Failing(error), Clock()
    reader = OwnerReader(failing.get, clock=clock)
    for n in range(10):
        assert await reader.read(asked(f"j{n}")) is None
    assert failing.n_asked == 1
    clock.now += ReaderTiming().rest_s
    assert await reader.read(asked()) is None
    assert failing.n_asked == 2


@pytest.mark.parametrize("error", [NotFound("404"), RequestRefused("403", status=403)])
async def test_owner_that_is_not_there_or_not_ours_to_read_stops_no_other(error: KubeError) -> None:
    failing = Failing(error)
    reader = OwnerReader(failing.get)
    for _ in range(2):
        assert await reader.read(asked("a")) is None
        assert await reader.read(asked("b")) is None
    assert failing.n_asked == 2


async def test_what_is_known_is_told_while_the_api_server_rests() -> None:
    shelf, clock = a_shelf("j"), Clock()
    reader = OwnerReader(shelf.get, clock=clock)
    await reader.read(asked("j"))
    shelf.error = Unavailable("503")
    await reader.read(asked("other"))
    assert await reader.read(asked("j")) is not None


async def test_silent_api_server_costs_a_review_less_than_its_timeout() -> None:
    async def silent(_path: str) -> bytes:
        await asyncio.Event().wait()
        raise AssertionError

    reader = OwnerReader(silent)
    async with asyncio.timeout(1.0):
        answers = await asyncio.gather(*(reader.read(asked(f"j{n}")) for n in range(100)))
    assert answers == [None] * 100


async def test_reads_that_wait_for_their_place_are_not_late() -> None:
    names = [f"j{n}" for n in range(4 * MAX_READS)]
    shelf = a_shelf(*names)

    async def slow(path: str) -> bytes:
        await asyncio.sleep(ReaderTiming().read_s / 2)
        return await shelf.get(path)

    reader = OwnerReader(slow)
    assert None not in await asyncio.gather(*(reader.read(asked(name)) for name in names))


async def test_caller_that_hangs_up_takes_the_answer_from_nobody() -> None:
    is_open = asyncio.Event()
    shelf = a_shelf("j")

    async def slow(path: str) -> bytes:
        await is_open.wait()
        return await shelf.get(path)

    reader = OwnerReader(slow)
    first = asyncio.create_task(reader.read(asked()))
    second = asyncio.create_task(reader.read(asked()))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    is_open.set()
    assert await second is not None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"metadata": null}',
        b'{"metadata": {"name": "j"}, "spec": []}',
        b'{"metadata": {"name": "j"}, "spec": {"parallelism": "4"}}',
        b'{"metadata": {"name": "j"}, "spec": {"x": ' + b"[" * 200_000 + b"}}",
        b'{"metadata": {"name": "\xff"}}',
    ],
    ids=range(9),
)
async def test_owner_that_is_not_understood_is_not_known(body: bytes) -> None:
    async def get(_path: str) -> bytes:
        return body

    assert await OwnerReader(get).read(asked()) is None


async def test_memory_is_bounded() -> None:
    shelf = Shelf()
    reader = OwnerReader(shelf.get)
    for n in range(MAX_KEPT + 5):
        await reader.read(asked(f"j{n}"))
    await reader.read(asked(f"j{MAX_KEPT}"))
    assert len(shelf.asked) == MAX_KEPT + 5
    await reader.read(asked("j0"))
    assert len(shelf.asked) == MAX_KEPT + 6


async def test_lookups_are_counted_by_their_answer() -> None:
    registry = CollectorRegistry()
    reader = OwnerReader(a_shelf("j").get, registry=registry)
    for name in ("j", "j", "gone"):
        await reader.read(asked(name))
    counted = {
        answer: registry.get_sample_value("ballast_webhook_owner_lookups_total", {"answer": answer})
        for answer in ("read", "kept", "unknown")
    }
    assert counted == {"read": 1.0, "kept": 1.0, "unknown": 1.0}
