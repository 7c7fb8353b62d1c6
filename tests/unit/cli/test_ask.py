"""Requests of commands to the API server, and messages for unknown kinds."""

import asyncio
import json

import pytest

from extender.cli.ask import listed, said
from extender.kube.errors import NotFound
from extender.kube.transport import Call

_MISSING = "404 NotFound: the server could not find the requested resource"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (f"GET /apis/view.ballast.dev/v1alpha1/shares: {_MISSING}", "overlays/view installs what"),
        ("GET /apis/view.ballast.dev/v1alpha1: 404 NotFound: 404 page not found", "overlays/view"),
        (f"GET /apis/ballast.dev/v1alpha1/gpunodes: {_MISSING}", "Ballast is not installed in"),
        (f"GET /apis/events.k8s.io/v1/events: {_MISSING}", _MISSING.partition(": ")[2]),
        ('GET /api/v1/pods/x: 404 NotFound: pods "x" not found', 'pods "x" not found'),
    ],
)
def test_what_is_missing_is_reported(message: str, told: str) -> None:
    assert told in said(NotFound(message))


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
