"""Where the API server is, as a kubeconfig says."""

import json
from pathlib import Path

import pytest

from extender.kube.connection import Connection, Source
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
