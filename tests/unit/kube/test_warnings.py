"""Texts of the API server's warnings."""

import pytest

from extender.kube.warnings import read_warnings


@pytest.mark.parametrize(
    ("headers", "texts"),
    [
        ([], []),
        (['299 - "plain"'], ["plain"]),
        (['299 - "say \\"no\\" to \\\\"'], ['say "no" to \\']),
        (['299 - "one", 299 - "two"', '299 - "three"'], ["one", "two", "three"]),
        (['199 - "another code"', "nonsense"], []),
    ],
)
def test_warnings_are_read_without_their_quotes(headers: list[str], texts: list[str]) -> None:
    assert list(read_warnings(headers)) == texts
