"""Requests of commands to the API server, and messages for unknown kinds."""

import asyncio
import json
from pathlib import Path

import click
import pytest

from extender.api.names import VIEW_PATH
from extender.cli.ask import answered, ask, listed, said
from extender.cli.terminal.flags import Where
from extender.kube.errors import NotFound, Unauthorized
from extender.kube.transport import Call

_MISSING = "404 NotFound: the server could not find the requested resource"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (f"GET /apis/view.ballast.dev/v1alpha1/shares: {_MISSING}", "overlays/view installs what"),
        ("GET /apis/view.ballast.dev/v1alpha1: 404 NotFound: 404 page not found", "overlays/view"),
        (f"GET /apis/ballast.dev/v1alpha1/gpunodes: {_MISSING}", "Ballast is not installed in"),
        (f"GET /apis/ballast.dev/v1alpha1: {_MISSING}", "Ballast is not installed in"),
        (f"GET /apis/events.k8s.io/v1/events: {_MISSING}", _MISSING.partition(": ")[2]),
        ('GET /api/v1/pods/x: 404 NotFound: pods "x" not found', 'pods "x" not found'),
    ],
)
def test_what_is_missing_is_reported(message: str, told: str) -> None:
    assert told in said(NotFound(message))


@pytest.mark.parametrize(
    ("server", "told"),
    [
        ("127.0.0.1:1", "cannot connect to 127.0.0.1:1: Connection refused"),
        ("nowhere.invalid:6443", "cannot connect to nowhere.invalid:6443: "),
    ],
)
def test_a_server_that_cannot_be_reached_is_named_without_terms_of_the_program(
    server: str, told: str, tmp_path: Path
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(
        f"""
clusters: [{{name: c, cluster: {{server: "https://{server}"}}}}]
users: [{{name: u, user: {{token: t}}}}]
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
current-context: c
"""
    )
    with pytest.raises(click.ClickException) as raised:
        ask(Where(kubeconfig=str(path)), lambda client: client.get_raw("/version"))
    message = raised.value.message
    assert message.startswith(f"no answer: GET /version: {told}")
    assert "Error" not in message
    assert "[" not in message


def test_credentials_that_are_refused_may_have_expired(tmp_path: Path) -> None:
    async def refuse(_client: object) -> None:
        raise Unauthorized("GET /version: 401 Unauthorized: Unauthorized")

    path = tmp_path / "kubeconfig"
    path.write_text(
        """
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
"""
    )
    with pytest.raises(click.ClickException) as raised:
        ask(Where(kubeconfig=str(path)), refuse)
    assert raised.value.message == (
        "the API server refuses the credentials of the kubeconfig, which may have expired:"
        " Unauthorized"
    )


class Without:
    """An API server that knows only the given path."""

    def __init__(self, known: str = "") -> None:
        self._known = known

    async def send(self, call: Call) -> bytes:
        """An empty object; raises NotFound."""
        if call.path != self._known:
            raise NotFound(f"{call.method} {call.path}: {_MISSING}")
        return b"{}"


@pytest.mark.parametrize(
    ("known", "told"),
    [
        ("", "Ballast is not installed in this cluster"),
        ("/apis/ballast.dev/v1alpha1", "where Ballast runs, kubectl apply"),
    ],
)
def test_the_overlay_view_is_proposed_only_where_the_kinds_of_ballast_are(
    known: str, told: str
) -> None:
    with pytest.raises(NotFound) as raised:
        asyncio.run(answered(Without(known), Call("GET", f"{VIEW_PATH}/shares")))  # type: ignore[arg-type]
    assert told in said(raised.value)


class Pages:
    """An API server that answers a list in pages of one item."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self.asked: list[str] = []

    async def send(self, call: Call) -> bytes:
        """One page; the token is the number of the next one."""
        at = int(call.query.get("continue", "0"))
        self.asked.append(call.query["limit"])
        token = {"continue": str(at + 1)} if at + 1 < len(self._names) else {}
        return json.dumps({"metadata": token, "items": [{"name": self._names[at]}]}).encode()


def test_lists_are_read_to_their_last_page() -> None:
    pages = Pages("a", "b", "c")
    found = asyncio.run(listed(pages, "/api/v1/pods"))  # type: ignore[arg-type]
    assert [each["name"] for each in found] == ["a", "b", "c"]
    assert pages.asked == ["500"] * 3
