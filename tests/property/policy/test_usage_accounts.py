"""Accounts of past usage depend on what was held and when, not on when they are looked at."""

from hypothesis import given
from hypothesis import strategies as st

from extender.policy.queues.usage import advance

amounts = st.tuples(st.integers(0, 10**12), st.integers(0, 10**12), st.integers(0, 10**12))


@given(amounts, amounts, st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 10**6))
def test_account_does_not_depend_on_when_it_was_looked_at(
    usage: tuple[int, int, int],
    held: tuple[int, int, int],
    first_s: int,
    then_s: int,
    half_life_s: int,
) -> None:
    at_once = advance(usage, held, first_s + then_s, half_life_s)
    halfway = advance(usage, held, first_s, half_life_s)
    in_two = advance(halfway, held, then_s, half_life_s)
    for whole, parts in zip(at_once, in_two, strict=True):
        assert abs(whole - parts) <= 4 + whole // 10**12
