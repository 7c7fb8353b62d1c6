"""A scripted HTTP server, for answers that a real API server cannot be made to give.

A stale list, a watch that is closed at once, 429 and 500 on demand. It knows nothing of
Kubernetes: each request takes the next answer of the script, and the last one repeats.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from aiohttp import web

Answer = tuple[int, object]


@dataclass(slots=True)
class FakeApi:
    """Serves the scripts: answers to lists, to watches, and to everything that writes."""

    lists: list[Answer] = field(default_factory=list)
    watches: list[Answer] = field(default_factory=list)
    writes: list[Answer] = field(default_factory=list)
    #: To lists that ask only for the version of the store.
    probes: list[Answer] = field(default_factory=lambda: [pod_list(10**9, [])])
    headers: dict[str, str] = field(default_factory=dict)
    #: Close the connection without an answer to this many writes.
    n_writes_to_drop: int = 0
    seen: list[str] = field(default_factory=list)
    url: str = ""
    _runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    def kubeconfig(self, folder: Path) -> str:
        """Writes a kubeconfig for this server; returns its path."""
        path = folder / "fake.kubeconfig"
        named = {"name": "fake"}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [named | {"cluster": {"server": self.url}}],
            "users": [named | {"user": {}}],
            "contexts": [named | {"context": {"cluster": "fake", "user": "fake"}}],
            "current-context": "fake",
        }
        path.write_text(json.dumps(document))
        return str(path)

    def n_seen(self, kind: str) -> int:
        """How many requests of a kind came: "list", "watch", "probe" or "write"."""
        return self.seen.count(kind)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        if request.method != "GET":
            self.seen.append("write")
            if self.n_writes_to_drop:
                self.n_writes_to_drop -= 1
                assert request.transport is not None
                request.transport.abort()
            return self._respond(self.writes)
        kind, script = "list", self.lists
        if "watch" in request.query:
            kind, script = "watch", self.watches
        elif request.query.get("limit") == "1":
            kind, script = "probe", self.probes
        self.seen.append(kind)
        return self._respond(script)

    def _respond(self, script: list[Answer]) -> web.Response:
        code, body = script.pop(0) if len(script) > 1 else script[0]
        text = body if isinstance(body, str) else json.dumps(body)
        headers = self.headers if code >= 400 else {}
        return web.Response(status=code, text=text, headers=headers)


def pod_list(version: int, names: Iterable[str], at: int = 0) -> Answer:
    """A list of pods at this version, with UIDs equal to their names, last changed `at`."""
    items = [_pod(name, at or version) for name in names]
    return 200, {"metadata": {"resourceVersion": str(version)}, "items": items}


def watch_of(*changes: tuple[str, str, int]) -> Answer:
    """A watch that tells these changes (type, pod, version) and ends."""
    lines = [{"type": kind, "object": _pod(name, version)} for kind, name, version in changes]
    return 200, "".join(json.dumps(line) + "\n" for line in lines)


def watch_error(code: int, reason: str) -> Answer:
    """A watch that is accepted and then broken off by an ERROR line."""
    status = {"kind": "Status", "code": code, "reason": reason, "message": "told so"}
    return 200, json.dumps({"type": "ERROR", "object": status}) + "\n"


def _pod(name: str, version: int) -> dict[str, Any]:
    meta = {"name": name, "namespace": "n", "uid": name, "resourceVersion": str(version)}
    return {"metadata": meta}
