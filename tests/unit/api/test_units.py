"""Parsing of numbers: exactly the accepted texts, and nothing else; and ages."""

from datetime import UTC, datetime, timedelta

import pytest

from extender.api import units
from extender.api.units import UnitError
from tests.support.hostile import hostile_counts, hostile_fractions

#: No fraction of a card, but a share of its compute time.
NONE_OR_ALL = ("0", "0.0", "0.00", "0.000", "1")


@pytest.mark.parametrize(
    ("text", "milli"),
    [("0.5", 500), ("0.25", 250), ("0.001", 1), ("0.999", 999), ("0.1", 100), ("0.050", 50)],
)
def test_fraction_is_exact_milli(text: str, milli: int) -> None:
    assert units.parse_fraction(text) == milli


@pytest.mark.parametrize("text", hostile_fractions(), ids=lambda text: ascii(text)[:24])
def test_hostile_text_is_no_fraction(text: str) -> None:
    with pytest.raises(UnitError, match=r'between 0\.001 and 0\.999 .* such as "0\.5"'):
        units.parse_fraction(text)


@pytest.mark.parametrize("text", hostile_counts(), ids=lambda text: ascii(text)[:24])
def test_hostile_text_is_no_count(text: str) -> None:
    with pytest.raises(UnitError, match="whole number from 1 to 999999999"):
        units.parse_positive(text, "gpu-memory")


@pytest.mark.parametrize(
    "text",
    [text for text in hostile_fractions() if text not in NONE_OR_ALL],
    ids=lambda text: ascii(text)[:24],
)
def test_hostile_text_is_no_share_of_compute(text: str) -> None:
    with pytest.raises(UnitError, match="share between 0 and 1"):
        units.parse_share(text)


def test_corpus_is_as_large_as_the_threat_model_asks() -> None:
    assert len(set(hostile_fractions())) >= 250
    assert len(set(hostile_counts())) >= 250


@pytest.mark.parametrize(("text", "milli"), [("0", 0), ("1", 1000), ("0.25", 250), ("0.001", 1)])
def test_share_of_compute_goes_from_none_to_all(text: str, milli: int) -> None:
    assert units.parse_share(text) == milli


@pytest.mark.parametrize("text", ["1001", "-1", "01", "1000 ", "500m", "0.5", "", "5" * 9])
def test_milli_is_a_whole_number_up_to_a_thousand(text: str) -> None:
    with pytest.raises(UnitError, match="whole number from 0 to 1000"):
        units.parse_milli(text)


@pytest.mark.parametrize(
    ("value", "milli"),
    [(0, 0), (4, 4000), ("2.5", 2500), ("0.125", 125), ("64", 64000), (2.5, 2500), (4.0, 4000)],
)
def test_quota_in_gpus_is_exact_milli(value: float | str, milli: int) -> None:
    assert units.parse_gpus(value) == milli


@pytest.mark.parametrize(
    "value", [-1, True, "", "1.2345", 1.2345, 1e-7, 1e20, "1e3", " 4", "04", "4.", 10**20]
)
def test_malformed_quota_is_refused(value: float | str) -> None:
    with pytest.raises(UnitError, match="number of GPUs"):
        units.parse_gpus(value)


@pytest.mark.parametrize(
    ("value", "milli"),
    [("500m", 500), ("2", 2000), (3, 3000), ("0.1", 100), ("1n", 1), ("1u", 1), ("1e1", 10_000)],
)
def test_cpu_is_rounded_up_to_milli(value: int | str, milli: int) -> None:
    assert units.parse_cpu(value) == milli


@pytest.mark.parametrize(
    ("value", "mib"),
    [("1Gi", 1024), ("1Mi", 1), ("1", 1), (2**20 + 1, 2), ("1G", 954), ("1.5Gi", 1536)],
)
def test_memory_is_rounded_up_to_mib(value: int | str, mib: int) -> None:
    assert units.parse_memory(value) == mib


def test_memory_of_a_node_is_rounded_down() -> None:
    assert units.parse_memory_floor(2**20 + 1) == 1


@pytest.mark.parametrize("value", ["", "-1", "1 Gi", "1gi", "Gi", "1.", "1e", "0x1", True, -5])
def test_malformed_quantity_is_refused(value: int | str) -> None:
    with pytest.raises(UnitError, match="Kubernetes quantity"):
        units.parse_quantity(value)


@pytest.mark.parametrize(("value", "count"), [("2", 2), (3, 3), ("2000m", 2), ("1k", 1000)])
def test_whole_number_may_be_written_as_any_quantity(value: int | str, count: int) -> None:
    assert units.parse_whole(value, "nvidia.com/gpu") == count


@pytest.mark.parametrize("value", ["500m", "1.5", "1n", "0.999999999", "1.000000001"])
def test_part_of_a_whole_is_refused_rather_than_rounded(value: str) -> None:
    with pytest.raises(UnitError, match=r"nvidia\.com/gpu: .* is not a whole number"):
        units.parse_whole(value, "nvidia.com/gpu")


def test_huge_integers_are_refused_not_printed() -> None:
    with pytest.raises(UnitError, match="so large a number"):
        units.parse_quantity(10**5000)


def test_message_is_short_however_long_the_text() -> None:
    with pytest.raises(UnitError) as caught:
        units.parse_fraction("5" * 100_000)
    assert len(str(caught.value)) < 200


def test_message_escapes_what_would_turn_text_around_or_break_the_line() -> None:
    with pytest.raises(UnitError) as caught:
        units.parse_fraction("0.5\u202e\n\0")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("milli", "text"), [(2500, "2.5"), (4000, "4"), (0, "0"), (1, "0.001"), (-500, "-0.5")]
)
def test_gpus_are_printed_as_users_write_them(milli: int, text: str) -> None:
    assert units.format_gpus(milli) == text


def test_shares_of_a_card_never_add_up_to_more_than_it_has() -> None:
    assert sum(units.share_mib(333, 81_559) for _ in range(3)) <= 81_559
    assert units.share_milli(1, 81_559) == 1
    assert units.share_milli(81_560, 81_559) > units.MILLI_PER_GPU
    assert units.share_milli(1, 0) > units.MILLI_PER_GPU


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0, "0s"), (59, "59s"), (300, "5m"), (12_000, "3h20m"), (187_200, "2d4h"), (86_405, "1d")],
)
def test_an_age_has_at_most_two_units(seconds: int, told: str) -> None:
    assert units.format_age((datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()) == told


def test_an_age_of_no_time_is_a_dash_and_the_future_is_now() -> None:
    assert units.format_age("") == "-"
    assert units.format_age((datetime.now(UTC) + timedelta(hours=1)).isoformat()) == "0s"
