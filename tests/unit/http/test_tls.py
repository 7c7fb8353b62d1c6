"""TLS with client certificates: which clients are accepted, and reloading of changed files."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from extender.http.server import Address, Listener
from extender.http.tls import TlsError, TlsFiles, follow_files
from tests.support.controlplane.certificates import Authority, KeyPair

ALLOWED = frozenset({"system:kube-scheduler"})


class Shop:
    """A CA, the files of a listener, and client contexts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority()
        self.files = TlsFiles(str(folder / "crt"), str(folder / "key"), str(folder / "ca"))
        self.write_serving(self.authority)
        (folder / "ca").write_bytes(self.authority.certificate)

    def write_serving(self, authority: Authority) -> None:
        pair = authority.serving(["localhost"], ["127.0.0.1"])
        (self.folder / "key").write_bytes(pair.key)
        (self.folder / "crt").write_bytes(pair.certificate)

    def client(self, pair: KeyPair | None, trusts: Authority | None = None) -> ssl.SSLContext:
        trusted = (trusts or self.authority).certificate.decode()
        context = ssl.create_default_context(cadata=trusted)
        if pair is not None:
            for name, content in (("c.crt", pair.certificate), ("c.key", pair.key)):
                (self.folder / name).write_bytes(content)
            context.load_cert_chain(self.folder / "c.crt", self.folder / "c.key")
        return context


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@asynccontextmanager
async def listening(shop: Shop) -> AsyncIterator[Listener]:
    app = web.Application()

    async def hello(_request: web.Request) -> web.Response:
        return web.Response(text="hello")

    app.router.add_get("/", hello)
    async with Listener(app, Address("127.0.0.1", 0), shop.files, ALLOWED) as listener:
        yield listener


async def ask(listener: Listener, context: ssl.SSLContext) -> int:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"https://localhost:{listener.port}/", ssl=context) as answer,
    ):
        await answer.read()
        return answer.status


async def test_the_schedulers_certificate_is_answered(shop: Shop) -> None:
    async with listening(shop) as listener:
        scheduler = shop.authority.client("system:kube-scheduler")
        assert await ask(listener, shop.client(scheduler)) == 200


async def test_another_certificate_of_the_same_ca_is_a_403(shop: Shop) -> None:
    async with listening(shop) as listener:
        tenant = shop.authority.client("system:serviceaccount:team-a:default")
        assert await ask(listener, shop.client(tenant)) == 403


async def test_a_client_without_a_certificate_is_cut(shop: Shop) -> None:
    async with listening(shop) as listener:
        with pytest.raises((aiohttp.ClientError, ssl.SSLError, OSError)):
            await ask(listener, shop.client(None))


async def test_a_certificate_of_another_ca_is_cut(shop: Shop) -> None:
    async with listening(shop) as listener:
        forged = Authority().client("system:kube-scheduler")
        with pytest.raises((aiohttp.ClientError, ssl.SSLError, OSError)):
            await ask(listener, shop.client(forged))


async def test_plain_http_is_not_answered_on_the_tls_port(shop: Shop) -> None:
    async with listening(shop) as listener, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"http://127.0.0.1:{listener.port}/")


async def test_new_files_are_used_and_the_old_client_ca_no_longer(shop: Shop) -> None:
    before = shop.authority
    old_client = shop.client(before.client("system:kube-scheduler"), trusts=before)
    async with listening(shop) as listener:
        assert await ask(listener, old_client) == 200
        after = Authority("the-next-ca")
        shop.write_serving(after)
        (shop.folder / "ca").write_bytes(after.certificate)
        listener.use(shop.files.context())
        new_client = shop.client(after.client("system:kube-scheduler"), trusts=after)
        assert await ask(listener, new_client) == 200
        only_server_trusted = shop.client(before.client("system:kube-scheduler"), trusts=after)
        with pytest.raises((aiohttp.ClientError, ssl.SSLError, OSError)):
            await ask(listener, only_server_trusted)


async def test_a_change_of_the_files_is_noticed_and_a_half_written_one_waited_out(
    shop: Shop,
) -> None:
    used: asyncio.Queue[ssl.SSLContext] = asyncio.Queue()
    watching = asyncio.create_task(follow_files(shop.files, used.put_nowait, poll_s=0.01))
    try:
        await asyncio.sleep(0)
        (shop.folder / "key").write_bytes(b"half")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(used.get(), 0.1)
        shop.write_serving(shop.authority)
        assert isinstance(await asyncio.wait_for(used.get(), 60), ssl.SSLContext)
    finally:
        watching.cancel()


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(TlsError, match="nowhere"):
        TlsFiles(str(tmp_path / "nowhere"), "key", "ca").context()
