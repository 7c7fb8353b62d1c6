import json

import pytest

from extender.api.objects import Status
from extender.kube import errors
from extender.kube.errors import error_of_response, error_of_status


def body(code: int, reason: str, **details: object) -> bytes:
    return json.dumps(
        {"kind": "Status", "status": "Failure", "code": code, "reason": reason,
         "message": "words", "details": details}
    ).encode()  # fmt: skip


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", errors.RequestRefused),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.RequestRefused),
        (404, "NotFound", errors.NotFound),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "Expired", errors.Expired),
        (422, "Invalid", errors.RequestRefused),
        (429, "TooManyRequests", errors.Throttled),
        (500, "InternalError", errors.Unavailable),
        (504, "Timeout", errors.Unavailable),
    ],
)
def test_each_code_becomes_the_error_its_caller_acts_on(
    code: int, reason: str, kind: type[errors.KubeError]
) -> None:
    error = error_of_response(code, body(code, reason), "GET /x")
    assert type(error) is kind
    assert error.status == code
    assert "GET /x" in error.message
    assert "words" in error.message


def test_webhook_that_does_not_answer_is_told_from_an_api_server_that_does_not() -> None:
    message = (
        'Internal error occurred: failed calling webhook "pods.example.com": failed to call webhook'
    )
    error = error_of_status(Status(code=500, reason="InternalError", message=message), "x")
    assert type(error) is errors.WebhookAway


def test_an_answer_that_is_no_status_is_shown_in_part() -> None:
    error = error_of_response(503, b"<html>" + b"x" * 5000, "GET /x")
    assert isinstance(error, errors.Unavailable)
    assert "<html>" in error.message
    assert len(error.message) < 400


@pytest.mark.parametrize("text", [b'{"message":"\xff"}', b'{"details":' + b"[" * 5000])
def test_an_answer_that_can_not_be_decoded_has_the_error_of_its_code(text: bytes) -> None:
    assert isinstance(error_of_response(502, text, "GET /x"), errors.Unavailable)


def test_the_http_code_counts_where_the_body_says_otherwise() -> None:
    assert isinstance(error_of_response(409, body(200, ""), "x"), errors.Conflict)


def test_retry_after_is_taken_from_the_body_and_else_from_the_header() -> None:
    told = error_of_response(429, body(429, "", retryAfterSeconds=7), "x", "3")
    header = error_of_response(429, b"busy", "x", "3")
    odd = error_of_response(429, b"busy", "x", "Wed, 21 Oct 2026 07:28:00 GMT")
    assert [e.retry_after_s for e in (told, header, odd) if isinstance(e, errors.Throttled)] == [
        7.0,
        3.0,
        0.0,
    ]


def test_causes_of_a_throttled_request_are_kept() -> None:
    causes = [{"reason": "DisruptionBudget", "message": "needs 1"}]
    error = error_of_status(Status(code=429, details={"causes": causes}), "x")
    assert isinstance(error, errors.Throttled)
    assert error.causes == (errors.DISRUPTION_BUDGET,)
