"""Behind a proxy every request has the user's own token, and no other part of the browser's."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import yaml
from aiohttp import web

from extender.kube.borrowed import check_no_credentials, is_token
from extender.kube.connection import Connection, Source
from extender.kube.errors import Misconfigured
from extender.web.guard import guard_behind_proxy
from extender.web.identity import each_user
from extender.web.pages import Pages

LOOPBACK = "127.0.0.1"


class ApiServer:
    """Notes the headers of every request, and refuses it."""

    def __init__(self) -> None:
        self.seen: list[dict[str, str]] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.seen.append({key.lower(): value for key, value in request.headers.items()})
        body = {"kind": "Status", "status": "Failure", "message": "no", "code": 403}
        return web.json_response(body, status=403)


@pytest.fixture
def server() -> ApiServer:
    return ApiServer()


@pytest.fixture
async def pages(server: ApiServer, tmp_path: Path) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    api, url = await _listening(app)
    connection = await Connection.open(Source(kubeconfig(tmp_path, url)))
    await check_no_credentials(connection)
    shown, url = await _listening(Pages(each_user(connection), "", "", guard_behind_proxy).app())
    yield url
    await shown.cleanup()
    await connection.close()
    await api.cleanup()


async def _listening(app: web.Application) -> tuple[web.AppRunner, str]:
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, LOOPBACK, 0).start()
    return runner, f"http://{LOOPBACK}:{runner.addresses[0][1]}"


def kubeconfig(folder: Path, server: str, **user: str) -> str:
    path = folder / "kubeconfig"
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": user}],
    }  # fmt: skip
    path.write_text(yaml.safe_dump(config))
    return str(path)


async def get(url: str, headers: dict[str, str]) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        return answer.status, await answer.text()


@pytest.mark.parametrize(
    "headers",
    [{"Authorization": "Bearer abc.def"}, {"X-Forwarded-Access-Token": "abc.def"},
     {"Authorization": "bearer  abc.def", "X-Forwarded-Access-Token": "other"}],
)  # fmt: skip
async def test_the_users_token_reaches_the_api_server_alone(
    pages: str, server: ApiServer, headers: dict[str, str]
) -> None:
    told = {
        "Impersonate-User": "system:admin", "Impersonate-Group": "system:masters",
        "X-Forwarded-User": "root", "X-Remote-User": "root", "Cookie": "login=1",
    }  # fmt: skip
    status, _ = await get(f"{pages}/shares", headers | told)
    assert status == 403
    (seen,) = server.seen
    assert seen["authorization"] == "Bearer abc.def"
    assert not {key.lower() for key in told} & seen.keys()


@pytest.mark.parametrize(
    "headers",
    [{}, {"X-Forwarded-User": "root"}, {"Authorization": "Basic cm9vdDpyb290"},
     {"Authorization": "Bearer "}, {"Authorization": "Bearer a b"}],
)  # fmt: skip
async def test_a_request_without_a_token_asks_nothing(
    pages: str, server: ApiServer, headers: dict[str, str]
) -> None:
    for page in ("mine", "queue", "shares", "cluster", "evictions", "usage", "whatif",
                 "workload/a/b", "project/a"):  # fmt: skip
        status, text = await get(f"{pages}/{page}", headers)
        assert (status, "not logged in" in text) == (401, True), page
    assert server.seen == []


async def test_a_kubeconfig_with_credentials_is_refused(tmp_path: Path) -> None:
    connection = await Connection.open(
        Source(kubeconfig(tmp_path, "http://127.0.0.1:1", token="t"))
    )
    with pytest.raises(Misconfigured, match="leave its user empty"):
        await check_no_credentials(connection)
    await connection.close()


@pytest.mark.parametrize("text", ["", "a b", "a\r\nX: y", "a\x00", "é", "a" * 20_000])
def test_what_is_no_token_is_never_sent(text: str) -> None:
    assert not is_token(text)
