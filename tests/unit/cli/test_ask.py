"""What commands and pages say where the API server does not know what they ask for."""

import pytest

from extender.cli.ask import said
from extender.kube.errors import NotFound

_MISSING = "404 NotFound: the server could not find the requested resource"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (f"GET /apis/view.ballast.dev/v1alpha1/shares: {_MISSING}", "overlays/view installs what"),
        ("GET /apis/view.ballast.dev/v1alpha1: 404 NotFound: 404 page not found", "overlays/view"),
        (f"GET /apis/ballast.dev/v1alpha1/gpunodes: {_MISSING}", "Ballast is not installed in"),
        (f"GET /apis/events.k8s.io/v1/events: {_MISSING}", _MISSING.partition(": ")[2]),
        ('GET /api/v1/pods/x: 404 NotFound: pods "x" not found', 'pods "x" not found'),
    ],
)
def test_what_is_missing_is_told(message: str, told: str) -> None:
    assert told in said(NotFound(message))
