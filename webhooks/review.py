"""An AdmissionReview, and the whole language of answers to it.

Every decision is made by one of five constructors: `allowed`, `warned`, `patched`, `refused`,
`malformed`. What cannot be read is answered too: an unanswered review counts as a failed webhook,
which under `failurePolicy: Ignore` would let the object through.
"""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from extender.api.reasons import Reason, Refused

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
#: Kubernetes' own words for the codes we answer with; clients tell errors apart by them.
STATUS_REASONS: Final = {400: "BadRequest", 403: "Forbidden", 422: "Invalid"}
#: Kubernetes drops longer warnings, and cuts the answer's total at 4096.
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
    """What is asked. `object` is left undecoded: only the rules that need it pay for it."""

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
    """The answer before it is put on the wire. Not allowed without a message never happens."""

    is_allowed: bool
    ops: tuple[dict[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    code: int = 0
    reason: str = ""
    message: str = ""

    @property
    def word(self) -> str:
        """How metrics count the decision: allowed, warned, patched, or refused."""
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
    """The object is stored as it is, and its author reads why that may not be what was meant."""
    return Decision(is_allowed=True, warnings=warnings)


def patched(ops: Sequence[dict[str, Any]], *warnings: str) -> Decision:
    """The object is stored with these JSON Patch operations applied; none of them: as it is."""
    return Decision(is_allowed=True, ops=tuple(ops), warnings=warnings)


def refused(why: Refused) -> Decision:
    """The object is not stored; the author reads the detail of `why`."""
    is_invalid = why.reason is Reason.INVALID_REQUEST
    code = HTTPStatus.UNPROCESSABLE_ENTITY if is_invalid else HTTPStatus.FORBIDDEN
    return Decision(is_allowed=False, code=code, reason=why.reason, message=str(why))


def malformed(message: str) -> Decision:
    """The object is not stored, because it is no object of the kind that the review names."""
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
