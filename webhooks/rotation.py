"""When a serving certificate is renewed, and in which steps, so that every caller trusts the served
leaf at any time. Pure: a chain and the time in, the next chain out.

1. At two thirds of a leaf's life the next CA and leaf are made. Callers are given both CAs.
2. Once callers have had the new CA for a while, the new leaf is served. Its CA stays beside the old
   one, since replicas change their leaf one after the other.
3. An hour later the old CA is no longer trusted.

The chain is stored in one Secret, which replicas write with its resourceVersion: the second replica
to write then reads the first one's chain. If the Secret is deleted, the same steps start from the
served leaf.
"""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from webhooks import certs
from webhooks.certs import CA_FILE, CERTIFICATE_FILE, KEY_FILE, Bundle

_CURRENT_CA: Final = "current-ca.crt"
_PREVIOUS_CA: Final = "previous-ca.crt"
#: How long the previous leaf's CA is trusted; every replica has changed its leaf by then.
PREVIOUS_KEPT: Final = timedelta(hours=1)
_NEXT: Final = ("next-ca.crt", "next-tls.crt", "next-tls.key")


@dataclass(slots=True, frozen=True)
class Schedule:
    """How long a leaf lives, and how long callers have its CA before it is served.

    The API server learns of a changed configuration within about a second; the default allows for a
    slow one, and for replicas that check only periodically.
    """

    lifetime: timedelta = timedelta(days=90)
    overlap: timedelta = timedelta(minutes=2)


@dataclass(slots=True, frozen=True)
class Chain:
    """The leaf that is served with its CA, the previous CA, and the next leaf."""

    current: Bundle
    previous_ca: bytes = b""
    next: Bundle | None = None

    @property
    def trusted(self) -> bytes:
        """The CAs that callers must trust, in PEM: at most two."""
        other = self.next.ca if self.next else self.previous_ca
        return self.current.ca + other


def begin(served: Bundle | None, now: datetime, schedule: Schedule) -> Chain:
    """The first chain if none is stored; `served` is the leaf that replicas serve already."""
    made = certs.make(now=now, lifetime=schedule.lifetime)
    if served is None or not served.is_valid(now):
        return Chain(made)
    return Chain(served, next=made)


def advance(chain: Chain, now: datetime, schedule: Schedule, *, is_published: bool) -> Chain:
    """The chain that is due at the wall-clock time `now`; `chain` itself while nothing is due.

    `is_published` says whether callers have been given the CAs of `chain`.
    """
    following = chain.next
    if not chain.current.is_valid(now):
        # Too late for the steps: the clock jumped, or no replica ran for long.
        usable = following if following and following.is_valid(now) else None
        return Chain(usable or certs.make(now=now, lifetime=schedule.lifetime))
    if following is None:
        if now >= chain.current.renew_at:
            return replace(chain, next=certs.make(now=now, lifetime=schedule.lifetime))
        served_at = chain.current.made_at + schedule.overlap
        if chain.previous_ca and now >= served_at + PREVIOUS_KEPT:
            return replace(chain, previous_ca=b"")
        return chain
    if is_published and now >= following.made_at + schedule.overlap:
        return Chain(current=following, previous_ca=chain.current.ca)
    return chain


def to_data(chain: Chain) -> dict[str, str]:
    """The chain as the data of a Secret of type kubernetes.io/tls."""
    files = {
        CA_FILE: chain.trusted,
        CERTIFICATE_FILE: chain.current.certificate,
        KEY_FILE: chain.current.key,
        _CURRENT_CA: chain.current.ca,
        _PREVIOUS_CA: chain.previous_ca,
    }
    if following := chain.next:
        parts = (following.ca, following.certificate, following.key)
        files |= dict(zip(_NEXT, parts, strict=True))
    return {name: base64.b64encode(pem).decode("ascii") for name, pem in files.items()}


def from_data(data: Mapping[str, str]) -> Chain | None:
    """The chain in the data of a Secret; None if it is incomplete.

    A Secret from another program has its CA in `ca.crt` only.
    """
    read = _reader(data)
    try:
        current = Bundle(read(_CURRENT_CA) or read(CA_FILE), read(CERTIFICATE_FILE), read(KEY_FILE))
        following = Bundle(*(read(name) for name in _NEXT))
        if not current.is_whole():
            return None
        return Chain(current, read(_PREVIOUS_CA), following if following.is_whole() else None)
    except ValueError:
        return None


def _reader(data: Mapping[str, str]) -> Callable[[str], bytes]:
    return lambda name: base64.b64decode(data.get(name, ""), validate=True)
