"""The share of a card's time that each tenant is entitled to."""

from fractions import Fraction

from gpu_shim.policy.shares import Claim, automatic, excess_of, split


def claim(name: str, request: str, limit: str = "1", memory: str = "0") -> Claim:
    return Claim(name, Fraction(request), Fraction(limit), Fraction(memory))


def test_only_a_fraction_is_guaranteed_and_only_strict_mode_limits_it() -> None:
    assert automatic("strict", Fraction("0.25")) == (Fraction(1, 4), Fraction(1, 4))
    assert automatic("fair", Fraction("0.25")) == (Fraction(1, 4), Fraction(1))
    assert automatic("strict", None) == automatic("fair", None) == (Fraction(0), Fraction(1))


def test_what_is_left_is_split_equally_whatever_the_request() -> None:
    due = split([claim("a", "0.2"), claim("b", "0.3"), claim("c", "0.1")])
    assert due == {"a": Fraction(1, 3), "b": Fraction(13, 30), "c": Fraction(7, 30)}


def test_a_tenant_at_its_limit_drops_out_and_the_remainder_is_split_again() -> None:
    due = split([claim("a", "0.2", "0.25"), claim("b", "0.2", "0.4"), claim("c", "0.1")])
    assert due == {"a": Fraction(1, 4), "b": Fraction(2, 5), "c": Fraction(7, 20)}


def test_time_stays_idle_when_all_are_at_their_limits() -> None:
    assert sum(split([claim("a", "0.2", "0.3"), claim("b", "0", "0.1")]).values()) == Fraction(2, 5)


def test_a_tenant_that_is_due_nothing_still_has_one_lease_in_ten_plans() -> None:
    due = split([claim("a", "0.6"), claim("b", "0.4"), claim("m", "0")])
    assert due["m"] == Fraction(1, 200)
    assert sum(due.values()) == 1


def test_floors_together_never_take_more_than_one_lease_in_twenty() -> None:
    due = split([claim("a", "1"), *(claim(f"m{at}", "0") for at in range(40))])
    assert due["a"] == Fraction(19, 20)


def test_a_limit_of_nothing_is_nothing() -> None:
    assert split([claim("a", "1"), claim("z", "0", "0")]) == {"a": 1, "z": 0}


def test_requests_and_memory_of_one_card_add_up_to_at_most_one() -> None:
    assert not excess_of([claim("a", "0.4"), claim("b", "0.6")])
    assert "compute" in excess_of([claim("a", "0.5"), claim("b", "0.6")])
    assert "memory" in excess_of([claim("a", "0", "1", "0.5"), claim("b", "0", "1", "0.6")])
    assert "limit" in excess_of([claim("a", "0.5", "0.4")])
