"""Decisions change on purpose only: `tests/tools/plan_hash.py` says how to store new hashes."""

import pytest

from tests.tools.plan_hash import QUICK, hash_of, stored


@pytest.mark.parametrize("group", QUICK)
def test_plans_are_those_whose_hash_is_stored(group: str) -> None:
    told = hash_of(group)
    assert told == stored()[group], "intended? python -m tests.tools.plan_hash --write"
