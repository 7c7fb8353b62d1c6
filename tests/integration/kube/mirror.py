"""A listener that stores the events of a reflector, and fails on inconsistent ones."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from prometheus_client import REGISTRY

from extender.api.events import Event, Removed, Synced, Upserted
from extender.kube.client import Client
from extender.kube.reflector import Reflector, Timing
from extender.kube.resources import Resource

PATIENCE_S = 90.0


class Mirror:
    """What exists according to a reflector, by UID."""

    def __init__(self) -> None:
        self.live: dict[str, Any] = {}
        self.story: list[Event] = []
        #: A reflector goes on whatever its listener raises; `reflecting` looks here at the end.
        self.nonsense: list[AssertionError] = []
        self._changed = asyncio.Event()

    def __call__(self, event: Event) -> None:
        try:
            self._take(event)
        except AssertionError as error:
            self.nonsense.append(error)
            raise

    def _take(self, event: Event) -> None:
        self.story.append(event)
        match event:
            case Upserted(obj):
                meta = obj.metadata
                for uid, other in self.live.items():
                    has_name = _key(other) == (meta.namespace, meta.name)
                    assert uid == meta.uid or not has_name, f"two objects named {meta.name}"
                self.live[meta.uid] = obj
            case Removed(_, uid, namespace, name):
                gone = self.live.pop(uid, None)
                assert gone is not None, f"{name} was not there"
                assert _key(gone) == (namespace, name)
        self._changed.set()

    @property
    def names(self) -> list[str]:
        """Names of what exists, sorted."""
        return sorted(obj.metadata.name for obj in self.live.values())

    @property
    def versions(self) -> dict[str, str]:
        """UID -> resourceVersion of what exists."""
        return {uid: obj.metadata.resource_version for uid, obj in self.live.items()}

    @property
    def n_synced(self) -> int:
        return sum(isinstance(event, Synced) for event in self.story)

    async def until(self, is_met: Callable[[], bool]) -> None:
        """Returns once the condition holds after some event; TimeoutError when it never does."""
        async with asyncio.timeout(PATIENCE_S):
            while not is_met():
                self._changed.clear()
                await self._changed.wait()

    async def until_names(self, *names: str) -> None:
        await self.until(lambda: self.names == sorted(names))


def _key(obj: Any) -> tuple[str, str]:
    return obj.metadata.namespace, obj.metadata.name


@asynccontextmanager
async def reflecting(
    client: Client,
    resource: Resource[Any],
    deliver: Callable[[Event], None],
    timing: Timing | None = None,
    namespace: str = "",
) -> AsyncIterator[Reflector[Any]]:
    """A running, synced reflector; a failure of it fails the test at the end."""
    reflector = Reflector(client, resource, deliver, timing=timing, namespace=namespace)
    task = asyncio.ensure_future(reflector.run())
    synced = asyncio.ensure_future(reflector.wait_synced())
    try:
        await asyncio.wait([task, synced], return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE_S)
        if not task.done():
            assert reflector.is_synced
            yield reflector
    finally:
        synced.cancel()
        if not task.done():
            task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        task.result()
    if isinstance(deliver, Mirror) and deliver.nonsense:
        raise deliver.nonsense[0]


def counted(metric: str, **labels: str) -> float:
    """The present value of a counter of ours."""
    return REGISTRY.get_sample_value(f"ballast_kube_{metric}_total", labels) or 0.0
