"""The base of all builders: metadata."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Self

from msgspec.structs import replace

from extender.api.objects import (
    ObjectMeta,
)


def at_s(seconds: int) -> datetime:
    """An API time from unix seconds."""
    return datetime.fromtimestamp(seconds, UTC)


class Builder:
    """Base of all builders: metadata."""

    def __init__(self, name: str, namespace: str = "") -> None:
        self._meta = ObjectMeta(
            name=name,
            namespace=namespace,
            uid=f"uid-{name}",
            resource_version="1",
            creation_timestamp=at_s(1_000),
        )

    def uid(self, uid: str) -> Self:
        self._meta = replace(self._meta, uid=uid)
        return self

    def version(self, version: int) -> Self:
        self._meta = replace(self._meta, resource_version=str(version))
        return self

    def created(self, seconds: int) -> Self:
        self._meta = replace(self._meta, creation_timestamp=at_s(seconds))
        return self

    def labelled(self, **labels: str) -> Self:
        return self.labels(labels)

    def labels(self, labels: Mapping[str, str]) -> Self:
        self._meta = replace(self._meta, labels={**(self._meta.labels or {}), **labels})
        return self

    def notes(self, annotations: Mapping[str, str]) -> Self:
        merged = {**(self._meta.annotations or {}), **annotations}
        self._meta = replace(self._meta, annotations=merged)
        return self
