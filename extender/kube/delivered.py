"""The objects of one kind that were delivered to a listener and not removed: key, UID and version.

Lists are compared with them. If an object replaces another of its name, the removal of the other is
delivered first.
"""

from collections.abc import Callable, KeysView
from typing import Generic, TypeVar

import structlog
from prometheus_client import Counter

from extender.api.events import Event, Removed, Upserted
from extender.api.objects import ObjectMeta
from extender.kube.resources import KubeObject, Resource
from extender.kube.wire import Identity

T = TypeVar("T", bound=KubeObject)

_log = structlog.get_logger(__name__)
_UNTOLD = Counter(
    "ballast_kube_untold_events_total",
    "Watch events that the listener failed to process.",
    ["resource"],
)


class Delivered(Generic[T]):
    """Delivers events of one resource. If `deliver` raises, the event is logged, counted and
    skipped, so that one unforeseen object does not hide all others."""

    def __init__(self, resource: Resource[T], deliver: Callable[[Event], None]) -> None:
        self._resource = resource
        self._deliver = deliver
        #: "namespace/name" -> UID and version.
        self._known: dict[str, tuple[str, str]] = {}

    def keys(self) -> KeysView[str]:
        """The keys of all objects."""
        return self._known.keys()

    def get(self, identity: Identity | ObjectMeta) -> tuple[str, str] | None:
        """UID and version of the delivered object of this name."""
        return self._known.get(identity.key)

    def upsert(self, obj: T) -> str:
        """Deliver the object, after the removal of another of its name; returns its key."""
        meta = obj.metadata
        key = self._remove_namesake(meta)
        self._known[key] = meta.uid, meta.resource_version
        self.tell(Upserted(obj))
        return key

    def keep(self, identity: Identity) -> str:
        """Record an object that exists but can't be delivered; returns its key."""
        key = self._remove_namesake(identity)
        if key in self._known:
            self._known[key] = identity.uid, identity.resource_version
        return key

    def remove(self, key: str, version: str) -> None:
        """Deliver the removal of the object, if it was delivered."""
        uid, _ = self._known.pop(key, ("", ""))
        if uid:
            namespace, _, name = key.rpartition("/")
            self.tell(Removed(self._resource.kind, uid, namespace, name, version))

    def tell(self, event: Event) -> None:
        """Deliver an event."""
        try:
            self._deliver(event)
        except Exception:
            _UNTOLD.labels(self._resource.plural).inc()
            _log.exception(
                "skipped an event", resource=self._resource.plural, about=_name_of(event)
            )

    def _remove_namesake(self, identity: Identity | ObjectMeta) -> str:
        """The object's key, after the removal of another object of that name."""
        key = identity.key
        if self._known.get(key, (identity.uid,))[0] != identity.uid:
            self.remove(key, identity.resource_version)
        return key


def _name_of(event: Event) -> str:
    match event:
        case Upserted(obj):
            return f"{obj.metadata.key}"
        case Removed(_, _, namespace, name, _):
            return f"the removal of {namespace}/{name}"
    return "the end of the list"
