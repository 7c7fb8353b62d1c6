"""Only canonical texts pass, whatever is thrown at the parsers; what passes is exact."""

from decimal import Decimal, InvalidOperation

from hypothesis import example, given
from hypothesis import strategies as st

from extender.api import units
from extender.api.units import UnitError
from tests.support.hostile import INVISIBLE

_DIGITS = "0123456789\u0665\uff15\u00b2\u0966._eE+-,xX/% \t\n\0mkKMGi" + "".join(INVISIBLE)
numberish = st.text(alphabet=_DIGITS, max_size=20) | st.text(max_size=20)


@given(text=numberish)
@example("0.5\n")
@example("0_5")
def test_fraction_that_passes_is_plain_ascii_and_exact(text: str) -> None:
    try:
        milli = units.parse_fraction(text)
    except UnitError:
        return
    assert text.isascii()
    assert set(text) <= set("0123456789.")
    assert len(text) <= 5
    assert Decimal(text) * 1000 == milli
    assert 1 <= milli <= 999


@given(milli=st.integers(1, 999))
def test_every_milli_has_a_text_that_passes(milli: int) -> None:
    assert units.parse_fraction(f"0.{milli:03d}") == milli
    assert units.parse_fraction(units.format_gpus(milli)) == milli


@given(text=numberish)
def test_count_that_passes_is_the_only_text_of_its_value(text: str) -> None:
    try:
        count = units.parse_positive(text, "x")
    except UnitError:
        return
    assert str(count) == text
    assert 1 <= count <= 999_999_999


@given(value=numberish | st.integers() | st.integers(10**4000, 10**4001))
def test_quota_that_passes_is_exact(value: int | str) -> None:
    try:
        milli = units.parse_gpus(value)
    except UnitError:
        return
    assert Decimal(value) * 1000 == milli
    assert milli >= 0


@given(milli=st.integers(0, 999_999_999))
def test_quota_survives_being_printed_and_read_again(milli: int) -> None:
    assert units.parse_gpus(units.format_gpus(milli)) == milli


@given(value=numberish | st.integers())
def test_whole_number_that_passes_is_never_a_rounded_one(value: int | str) -> None:
    try:
        count = units.parse_whole(value, "x")
    except UnitError:
        return
    try:
        exact = Decimal(str(value))
    except InvalidOperation:
        return  # it has a suffix
    assert exact == count


@given(value=st.from_regex(f"\\A{units.QUANTITY_PATTERN}\\Z"))
def test_every_quantity_of_the_grammar_is_read(value: str) -> None:
    assert units.parse_quantity(value) >= 0


@given(milli=st.integers(1, 1000), card_mib=st.integers(1, 300_000))
def test_a_share_in_mib_costs_no_more_milli_than_it_came_from(milli: int, card_mib: int) -> None:
    assert units.share_milli(units.share_mib(milli, card_mib), card_mib) <= milli
