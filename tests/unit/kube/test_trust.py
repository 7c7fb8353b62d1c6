"""A program keeps running when kubelet replaces the cluster's CA in its files."""

import gc
import json
import os
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from aiohttp import web

from extender.kube.client import Client
from extender.kube.errors import Unavailable
from tests.support.controlplane import certificates
from tests.support.controlplane.certificates import Authority
from tests.support.controlplane.kubeconfig import write_kubeconfig

PATH = "/api/v1/nodes"


@asynccontextmanager
async def serving(
    authority: Authority, folder: Path, port: int = 0, *, verify: ssl.VerifyMode = ssl.CERT_NONE
) -> AsyncIterator[int]:
    """An API server with a certificate of this CA, which clients have to have if `verify` says so;
    yields its port."""
    pair = authority.serving(["localhost"], ["127.0.0.1"])
    file = folder / "server.pem"
    file.write_bytes(pair.certificate + pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    context.load_verify_locations(cadata=authority.certificate.decode())
    context.verify_mode = verify
    app = web.Application()
    app.router.add_get(PATH, _answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def _answer(_request: web.Request) -> web.Response:
    return web.Response(text="{}")


def kubeconfig(folder: Path, port: int, ca: Path) -> str:
    """A file that leads to this port, where the CA in the file `ca` is trusted."""
    cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(ca)}
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(document))
    return str(path)


async def test_a_ca_that_is_rotated_is_read_again(tmp_path: Path) -> None:
    old, new = Authority(), Authority()
    trusted = tmp_path / "trusted.crt"
    trusted.write_bytes(old.certificate)
    async with serving(old, tmp_path) as port:
        client = await Client.connect(kubeconfig(tmp_path, port, trusted))
        assert await client.get_raw(PATH) == b"{}"
    async with client, serving(new, tmp_path, port):
        with pytest.raises(Unavailable, match="is not accepted: self-signed"):
            await client.get_raw(PATH)
        trusted.write_bytes(old.certificate + new.certificate)
        assert await client.get_raw(PATH) == b"{}"


@pytest.mark.parametrize(
    ("valid_for", "skew", "why"),
    [
        (timedelta(minutes=-1), timedelta(minutes=5), "certificate has expired"),
        (timedelta(minutes=9), timedelta(minutes=-5), "certificate is not yet valid"),
    ],
)
async def test_a_certificate_of_another_time_is_reported_with_the_local_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, valid_for: timedelta, skew: timedelta, why: str
) -> None:
    ca = Authority()
    monkeypatch.setattr(certificates, "VALID_FOR", valid_for)
    monkeypatch.setattr(certificates, "CLOCK_SKEW", skew)
    trusted = tmp_path / "trusted.crt"
    trusted.write_bytes(ca.certificate)
    async with serving(ca, tmp_path) as port:
        client = await Client.connect(kubeconfig(tmp_path, port, trusted))
        async with client:
            with pytest.raises(Unavailable) as raised:
                await client.get_raw(PATH)
    named = f"GET {PATH}: the certificate of 127.0.0.1:{port} is not accepted: {why}; here it is 2"
    assert raised.value.message.startswith(named)


async def test_a_ca_file_that_is_half_written_is_read_again_when_it_is_whole(
    tmp_path: Path,
) -> None:
    old, new = Authority(), Authority()
    trusted = tmp_path / "trusted.crt"
    trusted.write_bytes(old.certificate)
    async with serving(new, tmp_path) as port:
        client = await Client.connect(kubeconfig(tmp_path, port, trusted))
        async with client:
            trusted.write_bytes(new.certificate[:99])
            with pytest.raises(Unavailable, match="is not accepted: self-signed"):
                await client.get_raw(PATH)
            trusted.write_bytes(new.certificate)
            assert await client.get_raw(PATH) == b"{}"


async def test_certificates_that_stand_in_a_kubeconfig_are_in_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, temporary = Authority(), tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    path, before = tmp_path / "kubeconfig", memory_files()
    async with serving(authority, tmp_path, verify=ssl.CERT_REQUIRED) as port:
        url, identity = f"https://127.0.0.1:{port}", authority.client("u")
        write_kubeconfig(path, url, authority.certificate, identity)
        async with await Client.connect(str(path)) as client:
            assert await client.get_raw(PATH) == b"{}"
            assert list(temporary.iterdir()) == []
            opened = memory_files() - before
            assert opened
    del client
    gc.collect()
    assert not opened & memory_files()


def memory_files() -> set[int]:
    """The inodes of the files in memory that this process has open for kubeconfigs."""
    links = [path for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return {
        path.stat().st_ino for path in links if os.readlink(path).startswith("/memfd:kubeconfig")
    }
