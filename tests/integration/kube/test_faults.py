"""Answers of a faulty API server, which a healthy one never gives."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from extender.api.events import Removed
from extender.kube import errors
from extender.kube.client import Client
from extender.kube.reflector import Reflector, Timing
from extender.kube.resources import PODS
from extender.kube.transport import Call
from tests.integration.kube.fakeapi import FakeApi, pod_list, watch_error, watch_of
from tests.integration.kube.mirror import PATIENCE_S, Mirror, counted

BUSY = (429, {"code": 429, "reason": "TooManyRequests", "message": "busy"})
BROKEN = (500, {"code": 500, "reason": "InternalError", "message": "etcd is away"})
POD = (200, {"metadata": {"name": "p", "namespace": "n", "uid": "p"}})


@pytest_asyncio.fixture
async def fake() -> AsyncIterator[FakeApi]:
    async with FakeApi() as fake:
        yield fake


@asynccontextmanager
async def client_of(fake: FakeApi, folder: Path) -> AsyncIterator[Client]:
    async with await Client.connect(fake.kubeconfig(folder)) as client:
        yield client


@asynccontextmanager
async def mirror_of(
    fake: FakeApi, folder: Path, timing: Timing | None = None
) -> AsyncIterator[Mirror]:
    """What a running reflector tells about the fake's pods."""
    mirror = Mirror()
    async with client_of(fake, folder) as client:
        task = asyncio.ensure_future(Reflector(client, PODS, mirror, timing=timing).run())
        try:
            yield mirror
        finally:
            task.cancel()
            await asyncio.wait([task])


async def until_seen(fake: FakeApi, kind: str, n: int) -> None:
    """Until so many requests of a kind came."""
    async with asyncio.timeout(PATIENCE_S):
        while fake.n_seen(kind) < n:
            await asyncio.sleep(0.01)


async def test_a_list_older_than_what_was_seen_is_not_used(fake: FakeApi, tmp_path: Path) -> None:
    stale = counted("reflector_failures", resource="pods", cause="StaleList")
    fake.lists = [
        pod_list(10, ["a"]),
        pod_list(11, []),  # older than version 20: "b" and "a" are not gone, the server lags
        pod_list(19, []),
        pod_list(21, ["a", "b", "c"]),
    ]
    fake.watches = [
        watch_of(("ADDED", "b", 20)),
        watch_error(410, "Expired"),
        watch_of(("BOOKMARK", "", 21)),
    ]
    async with mirror_of(fake, tmp_path) as mirror:
        await mirror.until_names("a", "b", "c")
    assert not any(isinstance(event, Removed) for event in mirror.story)
    assert counted("reflector_failures", resource="pods", cause="StaleList") == stale + 2


async def test_a_store_that_went_back_in_time_is_believed_after_a_while(
    fake: FakeApi, tmp_path: Path
) -> None:
    fake.lists = [pod_list(20, ["a", "b"]), pod_list(11, ["b", "c"], at=9)]
    fake.watches = [watch_error(410, "Expired"), watch_of(("ADDED", "d", 12))]
    async with mirror_of(fake, tmp_path, Timing(stale_s=0.5)) as mirror:
        await mirror.until_names("b", "c", "d")


async def test_a_listener_with_a_memory_is_told_that_the_store_went_back(
    fake: FakeApi, tmp_path: Path
) -> None:
    fake.lists = [pod_list(20, ["a"]), pod_list(11, ["a"], at=9)]
    fake.watches = [watch_error(410, "Expired")]
    mirror = Mirror()
    async with client_of(fake, tmp_path) as client:
        reflector = Reflector(
            client, PODS, mirror, timing=Timing(stale_s=0.5), ends_on_restore=True
        )
        with pytest.raises(errors.Restored, match="went back in time"):
            async with asyncio.timeout(PATIENCE_S):
                await reflector.run()
    assert mirror.names == ["a"]


@pytest.mark.parametrize(
    "restored",
    [pod_list(99, ["a"], at=9), pod_list(99, ["a", "gone"], at=10), pod_list(99, ["new"], at=19)],
    ids=["an older version", "a removed object", "an object that came before"],
)
async def test_a_restored_store_of_a_higher_version_is_noticed(
    restored: tuple[int, object], fake: FakeApi, tmp_path: Path
) -> None:
    fake.lists = [pod_list(10, ["a", "gone"]), restored]
    changes = watch_of(("DELETED", "gone", 19), ("BOOKMARK", "", 20))
    expired = watch_error(410, "Expired")
    fake.watches = [(200, f"{changes[1]}{expired[1]}")]
    async with client_of(fake, tmp_path) as client:
        reflector = Reflector(client, PODS, Mirror(), ends_on_restore=True)
        with pytest.raises(errors.Restored):
            async with asyncio.timeout(PATIENCE_S):
                await reflector.run()


async def test_objects_that_changed_or_came_while_it_was_away_are_no_sign_of_a_restore(
    fake: FakeApi, tmp_path: Path
) -> None:
    mixed = pod_list(99, ["a", "new"])
    mixed[1]["items"] += pod_list(10, ["same"])[1]["items"]  # type: ignore[index]
    fake.lists = [pod_list(10, ["a", "same", "gone"]), mixed]
    fake.watches = [watch_error(410, "Expired"), watch_of(("BOOKMARK", "", 100))]
    mirror = Mirror()
    async with client_of(fake, tmp_path) as client:
        task = asyncio.ensure_future(Reflector(client, PODS, mirror, ends_on_restore=True).run())
        await mirror.until_names("a", "new", "same")
        task.cancel()
        await asyncio.wait([task])


async def test_a_server_that_is_behind_what_was_seen_is_not_watched(
    fake: FakeApi, tmp_path: Path
) -> None:
    fake.lists = [pod_list(20, ["a"]), pod_list(11, ["b"], at=9)]
    fake.watches = [(503, {"code": 503, "message": "away"}), watch_of(("BOOKMARK", "", 12))]
    fake.probes = [pod_list(11, [])]
    async with mirror_of(fake, tmp_path, Timing(stale_s=0.5)) as mirror:
        await mirror.until_names("b")
    assert fake.n_seen("probe") == 1


async def test_a_watch_that_breaks_again_and_again_at_one_version_is_listed_anew(
    fake: FakeApi, tmp_path: Path
) -> None:
    fake.lists = [pod_list(10, ["a"]), pod_list(12, ["a", "b"])]
    broken = (200, '{"type": "ADDED", "obj')
    fake.watches = [broken, broken, broken, watch_of(("BOOKMARK", "", 13))]
    async with mirror_of(fake, tmp_path) as mirror:
        await mirror.until_names("a", "b")
    assert fake.n_seen("list") == 2


async def test_a_watch_that_goes_back_is_listed_anew(fake: FakeApi, tmp_path: Path) -> None:
    fake.lists = [pod_list(10, ["a"]), pod_list(12, ["a", "b"])]
    fake.watches = [watch_of(("ADDED", "z", 9)), watch_of(("BOOKMARK", "", 13))]
    async with mirror_of(fake, tmp_path) as mirror:
        await mirror.until_names("a", "b")


@pytest.mark.parametrize(
    "answer",
    [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnot a number\r\n",
        "HTTP/1.1 200 OK\r\nX: " + "y" * 2**17 + "\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope",
        "HTTP/9.9 9 9\r\n\r\n",
        "SSH-2.0-OpenSSH_9.6\r\n",
        "",
    ],
    ids=["chunks", "long header", "compression", "version", "protocol", "nothing"],
)
async def test_whatever_is_answered_only_errors_of_ours_come_out(
    answer: str, tmp_path: Path
) -> None:
    async def respond(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer.encode())
        writer.close()

    server = await asyncio.start_server(respond, "127.0.0.1", 0)
    fake = FakeApi(url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with server, client_of(fake, tmp_path) as client:
        with pytest.raises(errors.Unavailable):
            await client.list_page(PODS)
        with pytest.raises(errors.Unavailable):
            async for _ in client.lines(Call("GET", "/api/v1/pods"), 5):
                pass


@pytest.mark.parametrize(("code", "reason"), [(410, "Gone"), (410, "Expired"), (500, "Internal")])
async def test_an_error_inside_a_watch_leads_to_a_new_list_and_a_comparison(
    code: int, reason: str, fake: FakeApi, tmp_path: Path
) -> None:
    fake.lists = [pod_list(10, ["a", "b"]), pod_list(12, ["b", "c"])]
    fake.watches = [watch_error(code, reason), watch_of(("BOOKMARK", "", 13))]
    async with mirror_of(fake, tmp_path) as mirror:
        await mirror.until_names("b", "c")
    assert fake.n_seen("list") == 2


async def test_a_list_that_fails_half_way_removes_nothing(fake: FakeApi, tmp_path: Path) -> None:
    half = pod_list(12, ["a"])
    half[1]["metadata"]["continue"] = "more"  # type: ignore[index]
    expired = (410, {"code": 410, "reason": "Expired", "message": "token"})
    fake.lists = [pod_list(10, ["a", "b"]), half, expired, pod_list(13, ["a", "b", "z"])]
    fake.watches = [watch_error(410, "Expired"), watch_of(("BOOKMARK", "", 14))]
    async with mirror_of(fake, tmp_path) as mirror:
        await mirror.until_names("a", "b", "z")
    assert not any(isinstance(event, Removed) for event in mirror.story)


async def test_a_watch_that_is_closed_at_once_is_not_opened_in_a_tight_loop(
    fake: FakeApi, tmp_path: Path
) -> None:
    fake.lists = [pod_list(10, ["a"])]
    fake.watches = [(200, "")]
    async with mirror_of(fake, tmp_path):
        await asyncio.sleep(2)  # the rate over a time is what is tested
        assert fake.n_seen("watch") <= 8
        await until_seen(fake, "watch", 2)
    assert fake.n_seen("list") == 1


async def test_a_relist_that_leads_nowhere_is_not_repeated_in_a_tight_loop(
    fake: FakeApi, tmp_path: Path
) -> None:
    fake.lists = [pod_list(10, ["a"])]
    fake.watches = [watch_error(410, "Expired")]
    async with mirror_of(fake, tmp_path):
        await asyncio.sleep(2)  # the rate over a time is what is tested
        assert fake.n_seen("list") <= 8
        await until_seen(fake, "list", 2)


async def test_a_watch_that_tells_garbage_is_listed_again(fake: FakeApi, tmp_path: Path) -> None:
    fake.lists = [pod_list(10, ["a"]), pod_list(11, ["a", "b"])]
    fake.watches = [(200, "<html>a proxy was here</html>\n"), watch_of(("BOOKMARK", "", 12))]
    async with mirror_of(fake, tmp_path) as mirror:
        await mirror.until_names("a", "b")


async def test_reads_are_repeated_when_the_server_fails(fake: FakeApi, tmp_path: Path) -> None:
    fake.lists = [BROKEN, BROKEN, pod_list(10, ["a"])]
    async with client_of(fake, tmp_path) as client:
        assert len((await client.list_all(PODS)).items) == 1
    assert fake.n_seen("list") == 3


async def test_a_write_of_unknown_outcome_is_not_repeated(fake: FakeApi, tmp_path: Path) -> None:
    fake.writes = [BROKEN, POD]
    async with client_of(fake, tmp_path) as client:
        with pytest.raises(errors.Unavailable):
            await client.merge_patch(PODS, "p", {}, "n")
    assert fake.n_seen("write") == 1


@pytest.mark.parametrize("verb", ["delete", "replace"])
async def test_a_write_is_not_repeated_when_a_kept_connection_turns_out_closed(
    verb: str, fake: FakeApi, tmp_path: Path
) -> None:
    fake.lists, fake.writes, fake.n_writes_to_drop = [POD], [POD], 1
    async with client_of(fake, tmp_path) as client:
        await client.get(PODS, "p", "n")  # opens the connection that is kept
        write = (
            client.delete(PODS, "p", "n")
            if verb == "delete"
            else client.replace(PODS, {}, "p", "n")
        )
        with pytest.raises(errors.Unavailable):
            await write
    assert fake.n_seen("write") == 1


async def test_a_throttled_write_waits_as_told_and_passes_the_fence_again(
    fake: FakeApi, tmp_path: Path
) -> None:
    fake.writes, fake.headers = [BUSY, POD], {"Retry-After": "1"}
    clock = asyncio.get_running_loop().time
    checks: list[float] = []
    async with client_of(fake, tmp_path) as client:
        client.before_write = lambda: checks.append(clock())
        await client.merge_patch(PODS, "p", {}, "n")
    assert fake.n_seen("write") == 2
    assert checks[1] - checks[0] >= 1


async def test_a_wait_that_exceeds_the_deadline_is_not_begun(fake: FakeApi, tmp_path: Path) -> None:
    fake.writes, fake.headers = [BUSY, POD], {"Retry-After": "60"}
    async with client_of(fake, tmp_path) as client:
        with pytest.raises(errors.Throttled) as caught:
            async with asyncio.timeout(5):
                await client.merge_patch(PODS, "p", {}, "n")
    assert caught.value.retry_after_s == 60


async def test_retries_of_all_callers_together_are_bounded(fake: FakeApi, tmp_path: Path) -> None:
    fake.lists = [BROKEN]
    async with client_of(fake, tmp_path) as client:
        reads = [client.get(PODS, "p", "n") for _ in range(100)]
        await asyncio.gather(*reads, return_exceptions=True)
    assert fake.n_seen("list") <= 100 + 50


async def test_a_refused_token_is_read_again(fake: FakeApi, tmp_path: Path) -> None:
    refused = (401, {"code": 401, "reason": "Unauthorized", "message": "expired"})
    fake.lists = [refused, POD]
    async with client_of(fake, tmp_path) as client:
        assert (await client.get(PODS, "p", "n")).metadata.name == "p"
        fake.lists = [refused]
        with pytest.raises(errors.Unauthorized):
            await client.get(PODS, "p", "n")
    assert fake.n_seen("list") == 4
