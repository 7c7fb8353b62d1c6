"""A live audit: feeds etcd's history and a clock to the checker, and gives a verdict at the end."""

import asyncio
import contextlib
import json
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import aiohttp
import yaml

from tests.support.auditor.checker import Checker, Violation
from tests.support.auditor.etcd import HistoryLostError, Reader, Store
from tests.support.auditor.history import Change, Recording
from tests.support.auditor.rules import Limits
from tests.support.auditor.verdict import Verdict

TICK_S: Final = 1.0
LOOK_S: Final = 0.1
#: Longest waits for the reader and for rest: only a wait that is not met lasts so long.
PATIENCE_S: Final = 90.0
#: Extension of a kubeconfig's cluster with the address of its etcd.
EXTENSION: Final = "ballast.dev/etcd"
ENVIRONMENT: Final = "BALLAST_AUDIT_ETCD"


class Auditor:
    """`async with Auditor(kubeconfig) as auditor: ...; verdict = await auditor.finish()`.

    `kubeconfig` is the path of a kubeconfig with the address of etcd (see `find_store`), or a
    `Store`. Entering the context reads the present state and starts the audit.
    """

    def __init__(
        self,
        kubeconfig: str | Path | Store,
        *,
        limits: Limits | None = None,
        record: Path | None = None,
        needs_binds: bool = True,
    ) -> None:
        self._store = kubeconfig if isinstance(kubeconfig, Store) else find_store(kubeconfig)
        self._needs_binds = needs_binds
        self._recording = Recording(record) if record else None
        self._marks: dict[str, asyncio.Event] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._session: aiohttp.ClientSession | None = None
        self._reader: Reader | None = None
        self._was_at_rest = False
        self.checker = Checker(limits)
        self.violations: list[Violation] = []
        self.faults: list[str] = []

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession()
        self._reader = Reader(self._store, self._session)
        for change in await self._reader.read_state():
            self._observe(change)
        self._tasks = [
            asyncio.create_task(self._follow(self._reader), name="auditor follows"),
            asyncio.create_task(self._tick(), name="auditor ticks"),
        ]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
        if self._recording is not None:
            self._recording.close()

    async def catch_up(self, timeout_s: float = PATIENCE_S) -> None:
        """Return once all writes before this call have been judged."""
        if self._reader is None:
            raise RuntimeError("the audit has not begun")
        mark = await self._reader.mark()
        passed = self._marks.setdefault(mark, asyncio.Event())
        async with asyncio.timeout(timeout_s):
            await passed.wait()

    async def finish(self, *, settle_s: float = PATIENCE_S) -> Verdict:
        """Judge all writes so far, wait up to `settle_s` for rest, and give the verdict.

        Published figures must be right by then. Without rest (`settle_s` 0, or figures that keep
        changing) they are not judged. Nor are they judged again: Ballast's programs may have ended
        since, and a pod that leaves after that is in no report.
        """
        is_at_rest = False
        try:
            await self.catch_up()
            if not self._was_at_rest:
                is_at_rest = await self._come_to_rest(settle_s)
        except (TimeoutError, aiohttp.ClientError) as error:
            self.faults.append(f"could not read to the end: {error!r}")
        now_s = time.monotonic()
        self.violations += (self.checker.settle if is_at_rest else self.checker.tick)(now_s)
        self._was_at_rest |= is_at_rest
        return Verdict(
            self.checker.counts,
            list(self.violations),
            list(self.faults),
            self._was_at_rest,
            self._needs_binds,
        )

    async def _come_to_rest(self, settle_s: float) -> bool:
        """Whether the figures came to rest; returns early if the published ones are right."""
        deadline_s = time.monotonic() + settle_s
        while time.monotonic() < deadline_s:
            if self.checker.is_settled(time.monotonic()):
                await self.catch_up()
                if self.checker.is_settled(time.monotonic()):
                    return True
            await asyncio.sleep(LOOK_S)
        await self.catch_up()
        return settle_s > 0 and self.checker.is_at_rest(time.monotonic())

    async def _follow(self, reader: Reader) -> None:
        try:
            async for seen in reader.changes():
                if isinstance(seen, str):
                    self._marks.setdefault(seen, asyncio.Event()).set()
                else:
                    self._observe(seen)
        except HistoryLostError as lost:
            self.faults.append(str(lost))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.violations += self.checker.tick(time.monotonic())

    def _observe(self, change: Change) -> None:
        if self._recording is not None:
            self._recording.write(change)
        try:
            self.violations += self.checker.observe(change)
        except (ValueError, KeyError, TypeError) as error:
            # An unreadable object does not end the audit, but the audit is not clean.
            self.faults.append(f"{change.subject} at revision {change.revision}: {error!r}")


def find_store(kubeconfig: str | Path) -> Store:
    """The address of this cluster's etcd.

    It is in the environment variable BALLAST_AUDIT_ETCD ("<url>" or "<url> <prefix>"), else in the
    extension `ballast.dev/etcd` ({url, prefix}) of the current context's cluster.
    """
    if text := os.environ.get(ENVIRONMENT):
        return Store(*text.split())
    path = Path(kubeconfig)
    with contextlib.suppress(json.JSONDecodeError):
        return _store_of(json.loads(path.read_text()), path)
    return _store_of(yaml.safe_load(path.read_text()), path)


def _store_of(config: dict[str, list[dict[str, dict[str, object]]]], path: Path) -> Store:
    for entry in config.get("clusters", []):
        extensions = entry["cluster"].get("extensions") or []
        if isinstance(extensions, list):
            for each in extensions:
                if each["name"] == EXTENSION:
                    return Store(**each["extension"])
    raise LookupError(
        f"{path} does not say where etcd is: give --etcd, set {ENVIRONMENT}, or add the cluster"
        f" extension {EXTENSION}"
    )
