"""Decodes lists and watches into projections, so that one bad object never hides the others.

An object that does not decode (a poison object: written by a newer version, or by hand against the
schema) is logged, counted and skipped, but its identity is kept, so that it does not look deleted.

Some kinds hold any JSON, such as the parameters of a ResourceClaim, which every tenant may write.
If they are nested too deeply for the decoder, they are cut: no projection reads so deep.
"""

import re
from functools import cache
from typing import Any, Final, Generic, TypeVar

import msgspec
import structlog
from msgspec import Raw, Struct, field
from prometheus_client import Counter

from extender.kube.errors import Undecodable
from extender.kube.resources import KubeObject, Resource

T = TypeVar("T", bound=KubeObject)
V = TypeVar("V")

_log = structlog.get_logger(__name__)
_SKIPPED = Counter(
    "ballast_kube_skipped_objects_total",
    "Objects that could not be decoded, or were too large.",
    ["resource"],
)


class Identity(Struct, rename="camel", gc=False):
    """The name, UID and version of an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class Anonymous(Struct, gc=False):
    """An object of which only the identity is decoded."""

    metadata: Identity = field(default_factory=Identity)


class Page(Struct, Generic[T]):
    """One page of a list. `skipped` are objects that exist but do not decode."""

    items: list[T]
    resource_version: str = ""
    continue_token: str = ""
    skipped: list[Identity] = field(default_factory=list)
    #: Size of the answer.
    n_bytes: int = 0


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


#: Exceptions of decoding bytes that are no object of the kind. Invalid UTF-8 and too deep nesting
#: are not msgspec errors.
_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
#: Values nested deeper are cut from an answer that is nested too deeply for the decoder.
_MAX_DEPTH: Final = 64
#: A string, or a bracket outside of strings.
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)
_LINE = msgspec.json.Decoder(WatchLine)
_ANONYMOUS = msgspec.json.Decoder(Anonymous)
_RAW_LISTING = msgspec.json.Decoder(_RawListing)

#: How the API server begins objects of its own kinds, in the order of their fields.
_HEAD_TYPE: Final = re.compile(rb'\{"type":"([A-Z]+)","object":\{')
_HEAD_LIST: Final = re.compile(
    rb'"metadata":\{"resourceVersion":"([0-9]+)"(?:,"continue":"([^"\\]*)")?'
)
_HEAD_META: Final = re.compile(
    rb'"metadata":\{"name":"([^"\\]+)",(?:"generateName":"[^"\\]*",)?'
    rb'(?:"namespace":"([^"\\]+)",)?"uid":"([^"\\]+)","resourceVersion":"([0-9]+)"'
)


@cache
def _object_decoder(kind: type[T]) -> "msgspec.json.Decoder[T]":
    return msgspec.json.Decoder(kind)


@cache
def _list_decoder(kind: Any) -> "msgspec.json.Decoder[_Listing[Any]]":
    return msgspec.json.Decoder(_Listing[kind])


def _decode(decoder: "msgspec.json.Decoder[V]", body: bytes | bytearray | Raw) -> V:
    """What the decoder reads, also of a body that is nested too deeply for it."""
    try:
        return decoder.decode(body)
    except RecursionError:
        return decoder.decode(_cut_depths(bytes(body)))


def _cut_depths(body: bytes) -> bytes:
    """The JSON with null in place of values that are nested deeper than `_MAX_DEPTH`."""
    kept: list[bytes] = []
    depth = start = 0
    for token in _TOKEN.finditer(body):
        match token[0]:
            case b"[" | b"{":
                if depth == _MAX_DEPTH:
                    kept.append(body[start : token.start()])
                depth += 1
            case b"]" | b"}":
                depth -= 1
                if depth == _MAX_DEPTH:
                    kept.append(b"null")
                    start = token.end()
    return b"".join((*kept, body[start:]))


def decode_object(resource: Resource[T], body: bytes | Raw) -> T:
    """The object in `body`; raises Undecodable."""
    try:
        decoder: msgspec.json.Decoder[T] = _object_decoder(resource.kind)
        return _decode(decoder, body)
    except _BROKEN as error:
        raise Undecodable(f"{resource.plural}: {error}") from error


def decode_identity(resource: Resource[Any], body: bytes | Raw) -> Identity:
    """The identity of the object in `body`, even if the rest is malformed; raises Undecodable."""
    try:
        return _decode(_ANONYMOUS, body).metadata
    except _BROKEN as error:
        raise Undecodable(f"{resource.plural}: {error}") from error


def decode_line(resource: Resource[Any], line: bytes | bytearray) -> WatchLine:
    """One line of a watch, its object still encoded; raises Undecodable."""
    try:
        return _decode(_LINE, line)
    except _BROKEN as error:
        raise Undecodable(f"watch of {resource.plural}: {error}") from error


def read_cut_line(resource: Resource[Any], head: bytes) -> tuple[str, Identity]:
    """The type and the object's identity in a watch line of which only the head was kept."""
    kind = _HEAD_TYPE.match(head)
    if kind is None:
        raise Undecodable(f"watch of {resource.plural}: a line that is too long to be kept")
    return kind[1].decode(), _skip_large(resource, head)


def read_cut_page(resource: Resource[T], head: bytes) -> Page[T]:
    """The page of one object of which only the head was kept: the object is skipped."""
    meta = _HEAD_LIST.search(head)
    if meta is None:
        raise Undecodable(f"list of {resource.plural}: an object that is too large to be kept")
    token = (meta[2] or b"").decode()
    return Page([], meta[1].decode(), token, [_skip_large(resource, head)])


def _skip_large(resource: Resource[Any], head: bytes) -> Identity:
    found = _HEAD_META.search(head)
    if found is None:
        raise Undecodable(f"{resource.plural}: an object that is too large to be kept")
    name, namespace, uid, version = ((part or b"").decode() for part in found.groups())
    identity = Identity(name, namespace, uid, version)
    _report_skipped(resource, identity, "it is too large to be decoded")
    return identity


def skip(resource: Resource[Any], body: bytes | Raw, error: Undecodable) -> Identity:
    """Log and count a poison object; returns its identity, or raises Undecodable."""
    identity = decode_identity(resource, body)
    _report_skipped(resource, identity, error.message)
    return identity


def _report_skipped(resource: Resource[Any], identity: Identity, error: str) -> None:
    _SKIPPED.labels(resource.plural).inc()
    _log.error(
        "skipped an object that does not decode",
        resource=resource.plural,
        namespace=identity.namespace,
        name=identity.name,
        error=error,
    )


def decode_page(resource: Resource[T], body: bytes) -> Page[T]:
    """The page in `body`, without its poison objects; raises Undecodable."""
    try:
        listing = _decode(_list_decoder(resource.kind), body)
    except (msgspec.ValidationError, UnicodeDecodeError):
        return _decode_one_by_one(resource, body)
    except _BROKEN as error:
        raise Undecodable(f"list of {resource.plural}: {error}") from error
    meta = listing.metadata
    return Page(listing.items or [], meta.resource_version, meta.continue_, n_bytes=len(body))


def _decode_one_by_one(resource: Resource[T], body: bytes) -> Page[T]:
    try:
        listing = _decode(_RAW_LISTING, body)
    except _BROKEN as error:
        raise Undecodable(f"list of {resource.plural}: {error}") from error
    meta = listing.metadata
    page: Page[T] = Page([], meta.resource_version, meta.continue_, n_bytes=len(body))
    for raw in listing.items or ():
        try:
            page.items.append(decode_object(resource, raw))
        except Undecodable as error:
            page.skipped.append(skip(resource, raw, error))
    return page
