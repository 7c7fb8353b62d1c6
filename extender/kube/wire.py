"""Bytes of lists and watches to projections; one bad object never hides the others.

An object that does not decode (a poison object: written by a newer version, or by hand past the
schema) is logged, counted and left out, but its identity is kept, so that nobody concludes that it
was deleted.
"""

from functools import cache
from typing import Any, Generic, TypeVar

import msgspec
import structlog
from msgspec import Raw, Struct, field
from prometheus_client import Counter

from extender.kube.errors import Undecodable
from extender.kube.resources import KubeObject, Resource

T = TypeVar("T", bound=KubeObject)

_log = structlog.get_logger(__name__)
_SKIPPED = Counter(
    "ballast_kube_skipped_objects_total", "Objects that did not decode.", ["resource"]
)


class Identity(Struct, rename="camel", gc=False):
    """What tells one object from another, and one version of it from the next."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Anonymous(Struct, gc=False):
    """Any object, of which only the identity is read."""

    metadata: Identity = field(default_factory=Identity)


class Page(Struct, Generic[T]):
    """One page of a list. `skipped` are objects that exist but do not decode."""

    items: list[T]
    resource_version: str = ""
    continue_token: str = ""
    skipped: list[Identity] = field(default_factory=list)


class WatchLine(Struct, gc=False):
    """One line of a watch; `type` is ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    type: str
    object: Raw


class _ListMeta(Struct, rename="camel", gc=False):
    resource_version: str = ""
    continue_: str = field(default="", name="continue")


class _Listing(Struct, Generic[T]):
    metadata: _ListMeta
    items: list[T] | None = None


class _RawListing(Struct):
    metadata: _ListMeta
    items: list[Raw] | None = None


#: What decoding raises for bytes that are no object of the kind: text that is no UTF-8, or nested
#: beyond the stack, is no msgspec error.
_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_LINE = msgspec.json.Decoder(WatchLine)
_ANONYMOUS = msgspec.json.Decoder(Anonymous)
_RAW_LISTING = msgspec.json.Decoder(_RawListing)


@cache
def _object_decoder(kind: type[T]) -> "msgspec.json.Decoder[T]":
    return msgspec.json.Decoder(kind)


@cache
def _list_decoder(kind: Any) -> "msgspec.json.Decoder[_Listing[Any]]":
    return msgspec.json.Decoder(_Listing[kind])


def decode_object(resource: Resource[T], body: bytes | Raw) -> T:
    """The object in `body`; raises Undecodable."""
    try:
        decoder: msgspec.json.Decoder[T] = _object_decoder(resource.kind)
        return decoder.decode(body)
    except _BROKEN as error:
        raise Undecodable(f"{resource.plural}: {error}") from error


def decode_identity(resource: Resource[Any], body: bytes | Raw) -> Identity:
    """Who the object in `body` is, however odd the rest of it; raises Undecodable."""
    try:
        return _ANONYMOUS.decode(body).metadata
    except _BROKEN as error:
        raise Undecodable(f"{resource.plural}: {error}") from error


def decode_line(resource: Resource[Any], line: bytes) -> WatchLine:
    """One line of a watch, its object still encoded; raises Undecodable."""
    try:
        return _LINE.decode(line)
    except _BROKEN as error:
        raise Undecodable(f"watch of {resource.plural}: {error}") from error


def skip(resource: Resource[Any], body: bytes | Raw, error: Undecodable) -> Identity:
    """Logs and counts a poison object and says who it is; raises Undecodable if even that fails."""
    identity = decode_identity(resource, body)
    _SKIPPED.labels(resource.plural).inc()
    _log.error(
        "skipped an object that does not decode",
        resource=resource.plural,
        namespace=identity.namespace,
        name=identity.name,
        error=error.message,
    )
    return identity


def decode_page(resource: Resource[T], body: bytes) -> Page[T]:
    """The page in `body`, without its poison objects; raises Undecodable."""
    try:
        listing = _list_decoder(resource.kind).decode(body)
    except (msgspec.ValidationError, UnicodeDecodeError):
        return _decode_one_by_one(resource, body)
    except _BROKEN as error:
        raise Undecodable(f"list of {resource.plural}: {error}") from error
    meta = listing.metadata
    return Page(listing.items or [], meta.resource_version, meta.continue_)


def _decode_one_by_one(resource: Resource[T], body: bytes) -> Page[T]:
    try:
        listing = _RAW_LISTING.decode(body)
    except _BROKEN as error:
        raise Undecodable(f"list of {resource.plural}: {error}") from error
    meta = listing.metadata
    page: Page[T] = Page([], meta.resource_version, meta.continue_)
    for raw in listing.items or ():
        try:
            page.items.append(decode_object(resource, raw))
        except Undecodable as error:
            page.skipped.append(skip(resource, raw, error))
    return page
