"""Requirements of selectors, as in Kubernetes."""

import pytest

from extender.api.objects import Requirement
from extender.api.selectors import meets

LABELS = {"zone": "a", "size": "8"}


@pytest.mark.parametrize(
    ("key", "operator", "values", "expected"),
    [
        ("zone", "In", ["a", "b"], True),
        ("zone", "NotIn", ["a"], False),
        ("rack", "NotIn", ["a"], True),
        ("rack", "Exists", [], False),
        ("rack", "DoesNotExist", [], True),
        ("size", "Gt", ["7"], True),
        ("size", "Lt", ["7"], False),
        ("zone", "Gt", ["7"], False),
        ("rack", "Lt", ["7"], False),
        ("size", "Like", ["8"], None),
    ],
)
def test_operators(key: str, operator: str, values: list[str], expected: bool | None) -> None:
    assert meets(Requirement(key=key, operator=operator, values=values), LABELS) is expected
