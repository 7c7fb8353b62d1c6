"""Evictions, from events: which pods were evicted, for which pod, and whether it started.

An eviction was useless if its beneficiary is gone and never started. Events of other projects name
no pod, so for these the question is answered on that project's pages.
"""

from typing import Final, Literal

import msgspec

from extender.api.objects import Pod
from extender.api.reasons import STOPS, Reason

REASONS: Final = frozenset((*STOPS, Reason.WAITING_FOR_VICTIMS))

#: `gone`: the pod never started.
Fate = Literal["started", "waits", "gone", "unknown"]


class Reference(msgspec.Struct, frozen=True):
    """The object that an event is about."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    kind: str = ""


class _Series(msgspec.Struct, rename={"last": "lastObservedTime"}):
    last: str = ""


class _Metadata(msgspec.Struct, rename={"created": "creationTimestamp"}):
    created: str = ""


class Event(msgspec.Struct, rename="camel"):
    """An event of the controller, as in core/v1; times are RFC 3339."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    involved_object: Reference = msgspec.field(default_factory=Reference)
    related: Reference | None = None
    reason: str = ""
    message: str = ""
    type: str = ""
    event_time: str | None = None
    series: _Series | None = None

    @property
    def when(self) -> str:
        """When it was last seen."""
        seen = self.series.last if self.series else ""
        return seen or self.event_time or self.metadata.created

    @property
    def is_stop(self) -> bool:
        """Whether the event is about an evicted pod."""
        return self.reason in STOPS

    @property
    def beneficiary(self) -> Reference | None:
        """The pod for which pods were evicted, if the event names it."""
        if self.is_stop:
            return self.related if self.related and self.related.uid else None
        return self.involved_object if self.type == "Normal" else None


def fate_of(pod: Pod) -> Fate:
    """Whether the pod has a node."""
    return "started" if pod.spec.node_name else "waits"


class Line(msgspec.Struct, frozen=True):
    """One line of the page."""

    when: str
    pod: Reference
    reason: str
    message: str
    fate: Fate | Literal[""]

    @property
    def is_useless(self) -> bool:
        """Whether the beneficiary never started."""
        return self.fate == "gone"


def lines(events: list[Event], fates: dict[str, Fate], *, are_stops: bool) -> list[Line]:
    """Evicted pods, or their beneficiaries: useless evictions first, then the newest."""
    found = [
        Line(
            each.when,
            each.involved_object,
            each.reason,
            each.message,
            fates.get(each.beneficiary.uid, "unknown") if each.beneficiary else "",
        )
        for each in reversed(events)
        if each.is_stop is are_stops and (are_stops or each.beneficiary)
    ]
    return sorted(found, key=lambda line: not line.is_useless)
