"""Errors of requests to the API server, by what the caller does next.

Retry later: `Unavailable`, `Throttled`. Read again and redo: `Conflict`. List again: `Expired`.
Give up on this object: `NotFound`, `AlreadyExists`, `RequestRefused`, `Undecodable`. Request
less: `TooLarge`. Stop: `Unauthorized`, `NotLeading`, `Misconfigured`. Start anew: `Restored`,
`NewlyServed`.
HTTP answers are translated only here.
"""

# ruff: noqa: N818 (the names are what happened, as in `except Conflict`)

from typing import Any, ClassVar

import msgspec

from extender.api.objects import Status

#: How the API server says that a webhook that fails closed did not answer (apiserver
#: `admission/plugin/webhook/errors.go::ErrCallingWebhook`).
_NO_WEBHOOK = "failed calling webhook"
#: The cause with which the API server refuses an eviction because of a PodDisruptionBudget.
DISRUPTION_BUDGET = "DisruptionBudget"

_STATUS = msgspec.json.Decoder(Status)
_SHOWN_BYTES = 300


class KubeError(Exception):
    """A request that failed. `status` is the HTTP code, 0 without an answer."""

    default_status: ClassVar[int] = 0

    def __init__(self, message: str, *, status: int | None = None, reason: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.status = self.default_status if status is None else status
        self.reason = reason or type(self).__name__


class NotFound(KubeError):
    """404: the object, or its whole kind, does not exist."""

    default_status = 404


class Conflict(KubeError):
    """409: the object changed since it was read, or a precondition on it failed."""

    default_status = 409


class AlreadyExists(KubeError):
    """409: an object of this name already exists."""

    default_status = 409


class Expired(KubeError):
    """410: the resourceVersion or continue token is too old; list again."""

    default_status = 410


class RequestRefused(KubeError):
    """Any other 4xx: the request is invalid or forbidden, and a retry will not help."""

    default_status = 400


class Throttled(KubeError):
    """429: not executed. `retry_after_s` is the delay that the server requests, 0 if none."""

    default_status = 429

    def __init__(
        self, message: str, *, retry_after_s: float = 0.0, causes: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.causes = causes


class Unauthorized(KubeError):
    """401 although the credentials were just read again."""

    default_status = 401


class Unavailable(KubeError):
    """5xx, a broken connection or no answer in time. A write may or may not have happened."""


class WebhookAway(Unavailable):
    """500: a webhook that fails closed did not answer, so the write did not happen."""

    default_status = 500


class Undecodable(KubeError):
    """The server's answer can't be decoded."""


class TooLarge(KubeError):
    """The answer is larger than the caller accepts; `head` is its beginning."""

    def __init__(self, message: str, *, head: bytes = b"") -> None:
        super().__init__(message)
        self.head = head


class Restored(KubeError):
    """The cluster's store went back in time, as after a restore from a backup.

    Nothing learnt before is valid: deleted objects exist again, and versions repeat. A program that
    remembers more than the objects that exist has to start anew.
    """


class NewlyServed(KubeError):
    """The cluster serves a kind that it did not serve when the program started."""


class NotLeading(KubeError):
    """The write was stopped before it was sent: this process does not hold the Lease."""


class Misconfigured(KubeError):
    """There is no usable address or credential."""


_BY_CODE: dict[int, type[KubeError]] = {
    401: Unauthorized,
    404: NotFound,
    409: Conflict,
    410: Expired,
}


def error_of_status(status: Status, where: str, retry_after: str = "") -> KubeError:
    """The error for a Status body; `where` names the request."""
    message = f"{where}: {status.code} {status.reason or status.status}: {status.message}"
    if status.code == 429:
        return Throttled(
            message, retry_after_s=_retry_after_s(status, retry_after), causes=_causes(status)
        )
    if status.code == 409 and status.reason == "AlreadyExists":
        kind: type[KubeError] = AlreadyExists
    elif status.code in _BY_CODE:
        kind = _BY_CODE[status.code]
    elif 400 <= status.code < 500:
        kind = RequestRefused
    else:
        kind = WebhookAway if _NO_WEBHOOK in status.message else Unavailable
    return kind(message, status=status.code, reason=status.reason)


def error_of_response(code: int, body: bytes, where: str, retry_after: str = "") -> KubeError:
    """The error for an HTTP answer of 300 or above, with any body."""
    try:
        status = _STATUS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = body[:_SHOWN_BYTES].decode("utf-8", "replace").strip()
        status = Status(status="Failure", message=text)
    status.code = code
    return error_of_status(status, where, retry_after)


def _causes(status: Status) -> tuple[str, ...]:
    listed: Any = (status.details or {}).get("causes") or []
    return tuple(str(cause.get("reason", "")) for cause in listed if isinstance(cause, dict))


def _retry_after_s(status: Status, header: str) -> float:
    """Seconds from the body's details or the header; 0 if neither is a number."""
    seconds: Any = (status.details or {}).get("retryAfterSeconds") or header
    try:
        return max(0.0, float(seconds))
    except (TypeError, ValueError):
        return 0.0
