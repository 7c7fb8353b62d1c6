"""AdmissionReviews, and the five constructors of every decision.

The constructors are `allowed`, `warned`, `patched`, `refused` and `malformed`. An unreadable review
is answered too: a review without an answer counts as a failed webhook, which under `failurePolicy:
Ignore` would let the object through.
"""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from extender.api.reasons import Reason, Refused

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
#: The StatusReason of each code that we answer with; clients tell errors apart by it.
STATUS_REASONS: Final = {400: "BadRequest", 403: "Forbidden", 422: "Invalid"}
#: Kubernetes drops longer warnings, and cuts all of them together at 4096 characters.
MAX_WARNING: Final = 1024


class ReviewError(ValueError):
    """The body is no AdmissionReview of version v1; the message says what is wrong."""


class GroupVersionKind(Struct):
    """The type of the object under review."""

    group: str = ""
    version: str = ""
    kind: str = ""


class UserInfo(Struct):
    """The user that sent the request: the controller, for a pod that a controller creates."""

    username: str = ""


class Request(Struct, rename="camel", kw_only=True):
    """The request of a review. `object` stays undecoded until a rule needs it."""

    uid: str
    kind: GroupVersionKind = field(default_factory=GroupVersionKind)
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    operation: str = ""
    user_info: UserInfo = field(default_factory=UserInfo)
    object: msgspec.Raw = field(default_factory=msgspec.Raw)
    old_object: msgspec.Raw = field(default_factory=msgspec.Raw)


class _Review(Struct, rename="camel", kw_only=True):
    api_version: str
    kind: str
    request: Request


class Decision(Struct, frozen=True, kw_only=True):
    """The answer before it is encoded. A decision that is not allowed always has a message."""

    is_allowed: bool
    ops: tuple[dict[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    code: int = 0
    reason: str = ""
    message: str = ""

    @property
    def word(self) -> str:
        """The decision as metrics count it: allowed, warned, patched, or refused."""
        if not self.is_allowed:
            return "refused"
        if self.ops:
            return "patched"
        return "warned" if self.warnings else "allowed"


ALLOWED: Final = Decision(is_allowed=True)


def allowed() -> Decision:
    """The object is stored as it is."""
    return ALLOWED


def warned(*warnings: str) -> Decision:
    """The object is stored as it is, and its author reads the warnings."""
    return Decision(is_allowed=True, warnings=warnings)


def patched(ops: Sequence[dict[str, Any]], *warnings: str) -> Decision:
    """The object is stored with these JSON Patch operations applied, if any."""
    return Decision(is_allowed=True, ops=tuple(ops), warnings=warnings)


def refused(why: Refused) -> Decision:
    """The object is not stored; the author reads the detail of `why`."""
    is_invalid = why.reason is Reason.INVALID_REQUEST
    code = HTTPStatus.UNPROCESSABLE_ENTITY if is_invalid else HTTPStatus.FORBIDDEN
    return Decision(is_allowed=False, code=code, reason=why.reason, message=str(why))


def malformed(message: str) -> Decision:
    """The object is not stored, because it does not decode as the kind that the review names."""
    reason = Reason.INVALID_REQUEST
    code = HTTPStatus.BAD_REQUEST
    return Decision(is_allowed=False, code=code, reason=reason, message=f"{reason}: {message}")


_decoder = msgspec.json.Decoder(_Review)


def read(body: bytes) -> Request:
    """The request in the body; raises ReviewError."""
    try:
        review = _decoder.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ReviewError(f"body is not an AdmissionReview: {error}") from error
    if (review.api_version, review.kind) != (API_VERSION, KIND):
        raise ReviewError(f"body must be {API_VERSION} {KIND}")
    return review.request


def answer(uid: str, decision: Decision) -> bytes:
    """The AdmissionReview that carries `decision` for the request `uid`."""
    response: dict[str, Any] = {"uid": uid, "allowed": decision.is_allowed}
    if decision.ops:
        response["patchType"] = "JSONPatch"
        response["patch"] = msgspec.json.encode(decision.ops)
    if decision.warnings:
        response["warnings"] = [text[:MAX_WARNING] for text in decision.warnings]
    if not decision.is_allowed:
        response["status"] = {
            "code": decision.code,
            "reason": STATUS_REASONS[decision.code],
            "message": decision.message,
        }
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "response": response})
