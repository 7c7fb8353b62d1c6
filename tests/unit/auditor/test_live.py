"""The live auditor reads deletions, reports timed violations, and fails the tests it audits."""

import asyncio
import base64
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.support.auditor import Auditor, Limits
from tests.support.auditor import auditor as live
from tests.support.auditor.etcd import Store
from tests.unit.auditor.story import queue_of, row_of

ROOT = Path(__file__).parents[3]
LEDGER = "ballast.dev/gpunodes/n1"
PROJECT = "ballast.dev/gpuprojects/red"
HELD = "pods/team/held"

#: The fixture `audited` as tests use it, on an audit of which the verdict is given.
SUITE = """
from types import SimpleNamespace
from tests.support.auditor import Auditor, Verdict
from tests.support.auditor.checker import Counts
import pytest

@pytest.fixture
def api():
    ports = SimpleNamespace(etcd_client=1)
    return SimpleNamespace(control_plane=SimpleNamespace(ports=ports))

@pytest.fixture(autouse=True)
def _without_etcd(monkeypatch, request):
    async def begin(self):
        return self
    async def finish(self):
        return Verdict(Counts(binds=1), [], request.param, True, True)
    monkeypatch.setattr(Auditor, "__aenter__", begin)
    monkeypatch.setattr(Auditor, "finish", finish)

@pytest.mark.parametrize("_without_etcd", [[], ["a hole"]], ids=["clean", "unclean"], indirect=True)
async def test_it(audited):
    pass
"""


class Etcd:
    """Speaks as much of etcd's gateway as the reader needs; `write` is a change to one key."""

    def __init__(self) -> None:
        self.kvs: dict[str, dict[str, str]] = {}
        self.revision = 1
        self._watchers: list[asyncio.Queue[dict[str, Any]]] = []

    def write(self, path: str, obj: object, kind: str = "PUT") -> None:
        self.revision += 1
        key = base64.b64encode(f"/registry/{path}".encode()).decode()
        value = base64.b64encode(json.dumps(obj).encode()).decode() if kind == "PUT" else ""
        kv = {"key": key, "mod_revision": str(self.revision), "value": value}
        for watcher in self._watchers:
            watcher.put_nowait({"type": kind, "kv": kv} if kind != "PUT" else {"kv": kv})
        if kind == "PUT":
            self.kvs[path] = kv
        else:
            del self.kvs[path]

    async def range(self, request: web.Request) -> web.Response:
        body = await request.json()
        start, end = (base64.b64decode(body[key]) for key in ("key", "range_end"))
        found = [kv for kv in self.kvs.values() if start <= base64.b64decode(kv["key"]) < end]
        return web.json_response({"header": {"revision": str(self.revision)}, "kvs": found})

    async def put(self, request: web.Request) -> web.Response:
        key = base64.b64decode((await request.json())["key"]).decode()
        self.write(key.removeprefix("/registry/"), "")
        return web.json_response({})

    async def watch(self, request: web.Request) -> web.StreamResponse:
        changes: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._watchers.append(changes)
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            answer = {"result": {"events": [await changes.get()]}}
            await response.write(json.dumps(answer).encode() + b"\n")

    async def watched(self) -> None:
        while not self._watchers:
            await asyncio.sleep(0)


@asynccontextmanager
async def served() -> AsyncIterator[tuple[Etcd, Store]]:
    etcd = Etcd()
    app = web.Application()
    app.router.add_post("/v3/kv/range", etcd.range)
    app.router.add_post("/v3/kv/put", etcd.put)
    app.router.add_post("/v3/watch", etcd.watch)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        port = runner.addresses[0][1]
        yield etcd, Store(f"http://127.0.0.1:{port}")
    finally:
        await runner.cleanup()


def ledger(*names: str) -> dict[str, Any]:
    """A GpuNode of one card with a row of each of these pods."""
    rows = [row_of(name) for name in names]
    devices = [{"index": 0, "memoryMiB": 80000}]
    return {"metadata": {"name": "n1"}, "spec": {"rows": rows}, "status": {"devices": devices}}


def bound(name: str) -> dict[str, Any]:
    """A pod of project `red` on n1, with half of the card."""
    notes = {"gpu-fraction": "0.5", "ballast.dev/cards": "0:500:40000"}
    meta = {"name": name, "namespace": "team", "uid": f"uid-{name}", "annotations": notes}
    labels = {"ballast.dev/project": "red"}
    return {"metadata": meta | {"labels": labels}, "spec": {"nodeName": "n1"}, "status": {}}


async def test_a_deletion_is_a_change_that_says_so() -> None:
    async with served() as (etcd, store):
        etcd.write(LEDGER, ledger())
        async with Auditor(store, needs_binds=False) as auditor:
            await etcd.watched()
            assert list(auditor.checker.world.ledgers) == ["n1"]
            etcd.write(LEDGER, None, "DELETE")
            await auditor.catch_up()
            assert list(auditor.checker.world.ledgers) == []


async def test_what_has_lasted_too_long_is_in_the_verdict_though_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "TICK_S", 0.01)
    async with served() as (etcd, store):
        etcd.write(LEDGER, ledger("gone"))
        limits = Limits(orphan_row_s=0.05)
        async with Auditor(store, limits=limits, needs_binds=False) as auditor:
            async with asyncio.timeout(60):
                while not auditor.violations:
                    await asyncio.sleep(0.01)
            await etcd.watched()
            verdict = await auditor.finish(settle_s=0)
    assert verdict.invariants() == {"A4"}
    assert not verdict.is_clean


async def test_figures_that_were_right_at_rest_are_not_judged_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A test's programs end before its audit does, and then nothing reports a pod that leaves."""
    monkeypatch.setattr(live, "LOOK_S", 0.01)
    async with served() as (etcd, store):
        etcd.write(LEDGER, ledger("held"))
        etcd.write(HELD, bound("held"))
        etcd.write(PROJECT, queue_of("red", {}, 2, {"allocated": "0.5"}))
        limits = Limits(rest_s=0.05, settled_s=0.05)
        async with Auditor(store, limits=limits, needs_binds=False) as auditor:
            await etcd.watched()
            verdict = await auditor.finish()
            assert (verdict.was_at_rest, verdict.invariants()) == (True, set())
            etcd.write(HELD, None, "DELETE")
            verdict = await auditor.finish(settle_s=0.2)
    assert (verdict.was_at_rest, verdict.invariants()) == (True, set())


def test_a_test_whose_audit_is_not_clean_fails(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SUITE)
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.auditor.fixtures"]
    done = subprocess.run(
        [*argv, "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "test_it.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "2 passed, 1 error" in done.stdout, done.stdout
    assert "fault: a hole" in done.stdout
