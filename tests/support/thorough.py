"""Values of a parametrised test of which `make test` takes some and `make test-all` all.

A tuple has a value for each of several names.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

Value = TypeVar("Value")


def every(nth: int, values: Iterable[object]) -> list[object]:
    """The values; all but every `nth`, beginning with the first, are for `make test-all`."""
    return [_param(value, is_usual=at % nth == 0) for at, value in enumerate(values)]


def all_but(is_for_all: Callable[[Value], bool], values: Iterable[Value]) -> list[object]:
    """The values; those for which `is_for_all` is true are for `make test-all`."""
    return [_param(value, is_usual=not is_for_all(value)) for value in values]


def _param(value: object, *, is_usual: bool) -> object:
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=() if is_usual else pytest.mark.thorough)
