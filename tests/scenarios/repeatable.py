"""Draws of Hypothesis that depend on the seed alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from hypothesis.internal.conjecture.providers import HypothesisProvider


@contextmanager
def same_draws() -> Iterator[None]:
    """Inside the context Hypothesis prefers no constants of the code: it looks for them in the
    modules that tests before this one happened to import."""

    def none(*_: Any, **__: Any) -> None:
        return None

    with patch.object(HypothesisProvider, "_maybe_draw_constant", none):
        yield
