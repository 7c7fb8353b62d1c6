"""The API server's address, from a kubeconfig."""

import json
from pathlib import Path

import pytest
import yaml

from extender.kube import connection as module
from extender.kube.connection import Connection, Source, namespace_of
from extender.kube.errors import Misconfigured


def kubeconfig(folder: Path, server: str) -> str:
    """A file that leads to this server."""
    path = folder / "kubeconfig"
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {}}],
    }
    path.write_text(json.dumps(document))
    return str(path)


@pytest.mark.parametrize(
    "server",
    ["10.0.0.1", "localhost:6443", "ftp://10.0.0.1", "https://", "https://a:0", "http://a[b", ""],
)
async def test_a_server_that_is_no_address_is_refused_with_an_example(
    tmp_path: Path, server: str
) -> None:
    with pytest.raises(Misconfigured, match=r"kubeconfig: .* such as https://10\.0\.0\.1:6443"):
        await Connection.open(Source(kubeconfig(tmp_path, server)))


@pytest.mark.parametrize("server", ["http://127.0.0.1:8001", "https://[::1]:6443/k8s/clusters/c-1"])
async def test_a_server_is_taken_as_it_is_written(tmp_path: Path, server: str) -> None:
    connection = await Connection.open(Source(kubeconfig(tmp_path, server)))
    await connection.close()
    assert connection.host == server


async def test_an_empty_kubeconfig_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("")
    with pytest.raises(Misconfigured, match="it is empty, or not a kubeconfig"):
        await Connection.open(Source(kubeconfig=str(tmp_path / "config")))


async def test_a_kubeconfig_that_is_not_there_is_one_sentence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    missing = f"{tmp_path / 'none'}:{tmp_path / 'neither'}"
    with pytest.raises(Misconfigured, match="neither: there is no such kubeconfig"):
        await Connection.open(Source(missing))
    assert namespace_of(missing) == "default"
    assert caplog.records == []
    both = f"{tmp_path / 'none'}:{kubeconfig(tmp_path, 'https://[::1]:6443')}"
    connection = await Connection.open(Source(both))
    await connection.close()


def embedded(user: dict[str, object], **cluster: object) -> str:
    """The text of a kubeconfig with this user, as a Secret holds it."""
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:6443"} | cluster}],
        "users": [{"name": "u", "user": user}],
    }
    return yaml.safe_dump(document)


async def test_a_kubeconfig_in_memory_logs_in_by_its_own_token() -> None:
    source = Source(text=embedded({"token": "secret-word"}))
    connection = await Connection.open(source)
    await connection.close()
    assert await connection.headers() == {"authorization": "Bearer secret-word"}
    assert "secret-word" not in repr(source)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (embedded({"exec": {"command": "sh"}}), "exec is not allowed here"),
        (embedded({"tokenFile": "/etc/hostname"}), "tokenFile is not allowed"),
        (embedded({"client-key": "/etc/hostname"}), "client-key is not allowed"),
        (embedded({}, **{"certificate-authority": "/etc/hostname"}), "certificate-authority is"),
        (embedded({}, **{"insecure-skip-tls-verify": True}), "insecure-skip-tls-verify is not"),
        (embedded({}, server="http://10.0.0.1:6443"), "http is not allowed here"),
        ("[]", "it is not a kubeconfig"),
        ("a: b", "the kubeconfig: cannot be used"),
        ("{", "the kubeconfig: cannot be used"),
        ("users: 3", "the kubeconfig: cannot be used"),
    ],
)
async def test_a_kubeconfig_in_memory_reads_no_file_and_starts_no_program(
    text: str, why: str
) -> None:
    with pytest.raises(Misconfigured, match=why):
        await Connection.open(Source(text=text))


async def test_a_pool_that_was_replaced_is_closed_once_no_request_can_be_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster may refuse our credentials for days, and they are read again each time."""
    monkeypatch.setattr(module, "RENEW_EVERY_S", 0.0)
    opened = await Connection.open(Source(kubeconfig(tmp_path, "https://127.0.0.1:6443")))
    pools = [opened.session]
    for _ in range(3):
        await opened.renew(opened.generation)
        pools.append(opened.session)
    assert not any(pool.closed for pool in pools)
    monkeypatch.setattr(module, "RETIRED_S", 0.0)
    await opened.renew(opened.generation)
    assert [pool.closed for pool in pools[:3]] == [True] * 3
    assert not opened.session.closed
    await opened.close()
    assert all(pool.closed for pool in (*pools, opened.session))
