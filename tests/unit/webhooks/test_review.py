"""The wire format: an AdmissionReview in, an AdmissionReview out."""

import base64
import json
from typing import Any

import pytest

from extender.api.reasons import Reason, Refused
from tests.support.admission import pod, review_body
from webhooks import review
from webhooks.review import Decision, ReviewError


def response(decision: Decision) -> dict[str, Any]:
    document = json.loads(review.answer("u-1", decision))
    assert document["apiVersion"] == "admission.k8s.io/v1"
    assert document["kind"] == "AdmissionReview"
    found: dict[str, Any] = document["response"]
    assert found["uid"] == "u-1"
    return found


def test_request_is_read_with_the_object_left_as_it_came() -> None:
    request = review.read(review_body(pod().body, "team-a"))
    assert (request.operation, request.namespace, request.kind.kind) == ("CREATE", "team-a", "Pod")
    assert json.loads(bytes(request.object)) == pod().body


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"AdmissionReview"',
        b"\xff\xfe",
        b"NaN",
        b"[" * 200_000,
        b'{"a":' * 200_000,
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}',
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{}}',
        b'{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"u"}}',
        b'{"apiVersion":"admission.k8s.io/v1","kind":"Pod","request":{"uid":"u"}}',
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":1e999}}',
    ],
    ids=lambda body: repr(body)[:24],
)
def test_what_is_no_review_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises(ReviewError, match="AdmissionReview"):
        review.read(body)


def test_allowed_says_nothing_more() -> None:
    assert response(review.allowed()) == {"uid": "u-1", "allowed": True}


def test_patch_is_base64_of_its_operations() -> None:
    ops = [{"op": "add", "path": "/metadata/labels/a~1b", "value": "c"}]
    found = response(review.patched(ops))
    assert found["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(found["patch"])) == ops


def test_patch_without_operations_is_plain_consent() -> None:
    assert response(review.patched([])) == {"uid": "u-1", "allowed": True}


def test_warning_is_cut_before_kubernetes_cuts_it() -> None:
    (text,) = response(review.warned("w" * 5000))["warnings"]
    assert len(text) <= 1024


@pytest.mark.parametrize(
    ("reason", "code", "word"),
    [(Reason.INVALID_REQUEST, 422, "Invalid"), (Reason.UNKNOWN_PROJECT, 403, "Forbidden")],
)
def test_refusal_has_kubernetes_word_for_its_code_and_our_sentence(
    reason: Reason, code: int, word: str
) -> None:
    status = response(review.refused(Refused(reason, "a/b: why")))["status"]
    assert status == {"code": code, "reason": word, "message": f"{reason}: a/b: why"}


@pytest.mark.parametrize(
    ("decision", "word"),
    [
        (review.allowed(), "allowed"),
        (review.warned("w"), "warned"),
        (review.patched([{"op": "remove", "path": "/a"}], "w"), "patched"),
        (review.refused(Refused(Reason.INVALID_REQUEST)), "refused"),
        (review.malformed("m"), "refused"),
    ],
)
def test_metrics_word_of_a_decision(decision: Decision, word: str) -> None:
    assert decision.word == word
