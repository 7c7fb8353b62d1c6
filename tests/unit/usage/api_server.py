"""An API server for tests of the usage books."""

from typing import Any

from msgspec import convert

from extender.api.kinds import GpuUsage
from extender.kube.errors import AlreadyExists, Conflict, Unavailable
from extender.kube.wire import Page


class ApiServer:
    """Keeps GpuUsages; loses answers, before or after the write, as it is told."""

    def __init__(self, losses: list[str]) -> None:
        self.stored: dict[str, GpuUsage] = {}
        self._losses = losses
        self._version = 0

    async def pages(self, *_: Any, **__: Any) -> Any:
        yield Page(list(self.stored.values()))

    async def list_all(self, *_: Any, **__: Any) -> Page[GpuUsage]:
        return Page([])

    async def create(self, _: object, body: dict[str, Any]) -> GpuUsage:
        name = body["metadata"]["name"]
        if name in self.stored:
            raise AlreadyExists(name)
        return self._store(name, body)

    async def merge_patch(self, _: object, name: str, body: dict[str, Any]) -> GpuUsage:
        if self.stored[name].metadata.resource_version != body["metadata"]["resourceVersion"]:
            raise Conflict(name)
        return self._store(name, body)

    def _store(self, name: str, body: dict[str, Any]) -> GpuUsage:
        loss = self._losses.pop() if self._losses else ""
        if loss == "before":
            raise Unavailable("lost before the write")
        self._version += 1
        meta = body["metadata"] | {"name": name, "resourceVersion": str(self._version)}
        self.stored[name] = convert({"metadata": meta, "spec": body["spec"]}, GpuUsage)
        if loss == "after":
            raise Unavailable("lost after the write")
        return self.stored[name]
