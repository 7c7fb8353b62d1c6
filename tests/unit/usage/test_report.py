"""Reports of usage: sums, prices, the division of usage above quota, and the check."""

import csv
import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from extender.api.kinds import GpuProject, GpuUsageSpec, OverQuota, UsageLine
from extender.cli.past import reported as command
from extender.cli.past.report import report
from extender.usage.focus import BY, COLUMNS, focus_rows
from extender.usage.prices import PriceError, Prices, read_prices
from extender.usage.report import Report, divide, make_report
from tests.support.builders import project as budgeted

HOUR = 3_600_000
#: 2026-10-01 12:00 UTC.
NOON_S = 1790856000
PRICES = """
currency: EUR
gpuHour: "2.00"
overQuotaGpuHour: "0.50"
models: {H100: {gpuHour: "4.00"}}
"""


def by_hour(**amounts: int) -> list[int]:
    return [amounts.get(f"h{hour}", 0) for hour in range(24)]


def line(user: str, model: str = "A100", **amounts: int) -> UsageLine:
    return UsageLine(user=user, node_pool="default", model=model, held=by_hour(**amounts))


def project(name: str, *lines: UsageLine, **over: int) -> GpuUsageSpec:
    held = [OverQuota(node_pool="default", held=by_hour(**over))] if over else []
    return GpuUsageSpec(
        account="Project", name=name, day="2026-10-01", counted_to=NOON_S,
        lines=list(lines), over_quota=held,
    )  # fmt: skip


def pool(*lines: UsageLine) -> GpuUsageSpec:
    return GpuUsageSpec(
        account="NodePool", name="default", day="2026-10-01", counted_to=NOON_S,
        lines=list(lines),
    )  # fmt: skip


RECORDS = [
    project("ads", line("ann", h1=2 * HOUR), line("bo", "H100", h1=HOUR), h1=HOUR),
    project("search", line("", h1=HOUR, h2=HOUR)),
    pool(line("", h1=3 * HOUR, h2=HOUR), line("", "H100", h1=HOUR)),
]


def test_projects_have_what_they_held_in_quota_and_above_it() -> None:
    made = make_report(RECORDS, ["project"])
    held = {key: (each.in_quota, each.over_quota) for key, each in made.rows.items()}
    assert held == {("ads",): (2 * HOUR, HOUR), ("search",): (2 * HOUR, 0)}
    assert made.total.held == made.pools_held == 5 * HOUR
    assert made.differing == []


def test_what_is_above_quota_is_divided_by_what_was_held_in_that_hour() -> None:
    made = make_report(RECORDS, ["project", "user"])
    over = {key: each.over_quota for key, each in made.rows.items()}
    assert over == {("ads", "ann"): HOUR * 2 // 3, ("ads", "bo"): HOUR // 3, ("search", ""): 0}


@given(st.lists(st.integers(0, 10**9), max_size=6), st.integers(0, 10**10))
def test_parts_add_up_and_none_is_more_than_was_held(weights: list[int], amount: int) -> None:
    amount = min(amount, sum(weights))
    parts = divide(amount, weights)
    assert sum(parts) == amount
    assert all(0 <= part <= weight for part, weight in zip(parts, weights, strict=True))


def test_the_largest_remainders_round_up() -> None:
    assert divide(10, [5, 6, 7]) == [3, 3, 4]


def test_a_record_that_was_deleted_shows_in_the_check() -> None:
    made = make_report(RECORDS[1:], ["project"])
    assert made.differing == [("2026-10-01", 1, "default")]
    assert "differ at 2026-10-01 01:00" in command.check_line(made)


def test_the_hour_of_the_last_booking_may_be_written_in_part() -> None:
    last = project("ads", line("ann", h1=HOUR))
    last.counted_to = NOON_S - 10 * 3600 - 1800  # 01:30
    assert make_report([last], ["project"]).differing == []


def test_the_hour_before_may_be_written_in_part_just_after_a_full_hour() -> None:
    written = project("ads", line("ann", h11=HOUR))
    assert make_report([written], ["project"]).differing == []
    written.counted_to = NOON_S + 600
    assert make_report([written], ["project"]).differing == [("2026-10-01", 11, "default")]


@pytest.fixture
def prices(tmp_path: Path) -> Prices:
    (tmp_path / "prices.yaml").write_text(PRICES)
    return read_prices(tmp_path / "prices.yaml")


def test_charges_are_by_model_and_by_quota(prices: Prices) -> None:
    made = make_report(RECORDS, ["project"], prices)
    # ann: 4/3 h at 2.00 and 2/3 h at 0.50; bo: 2/3 h at 4.00 and 1/3 h at 4.00, which names none.
    assert round(made.rows["ads",].charge, 2) == round(8 / 3 + 1 / 3 + 4, 2)


@pytest.mark.parametrize(
    "text",
    [
        'gpuHour: "-1"',
        'gpuHour: "two"',
        "gpuHours: '2'",
        "[",
        "1",
        'models: {X: {overQuotaGpuHour: "1"}}',
        'gpuHour: "NaN"',
        'gpuHour: "Infinity"',
        'overQuotaGpuHour: "-1"',
    ],
)
def test_prices_that_are_none_are_refused_with_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "prices.yaml").write_text(text)
    with pytest.raises(PriceError, match=r"prices\.yaml: "):
        read_prices(tmp_path / "prices.yaml")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("gpuHour: [1\n", "not YAML: while parsing a flow sequence in line 1, column 10, expected"),
        ("gpuHour: \x01\n", "not YAML: unacceptable character #x0001: special characters are not"),
        ("[" * 5000, "it is nested too deeply"),
    ],
)
def test_price_file_that_is_no_yaml_is_reported_in_one_line(
    text: str, why: str, tmp_path: Path
) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(PriceError) as error:
        read_prices(path)
    assert str(error.value).startswith(f"{path}: {why}")
    assert "\n" not in str(error.value)


def test_prices_need_no_quotes_and_stay_exact(tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text("gpuHour: 2.10\nmodels: {H100: {gpuHour: 4}}\n")
    read = read_prices(path)
    assert str(read.per_hour("A100", is_over_quota=True)) == "2.10"
    assert str(read.per_hour("H100", is_over_quota=False)) == "4"


def test_a_price_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text("models: {H100: {gpuHour: 2.10 EUR}}")
    with pytest.raises(PriceError, match=r"models\.H100\.gpuHour: '2\.10 EUR' is not a decimal of"):
        read_prices(path)


def test_focus_rows_add_up_to_what_was_held(prices: Prices) -> None:
    rows = list(focus_rows(make_report(RECORDS, BY), "2026-10", prices))
    assert all(tuple(sorted(row)) == COLUMNS for row in rows)
    assert sum(float(row["ConsumedQuantity"]) for row in rows) == pytest.approx(5, abs=1e-5)
    assert {row["BillingPeriodEnd"] for row in rows} == {"2026-11-01T00:00:00Z"}
    above = {row["x_User"]: row for row in rows if row["PricingCategory"] == "Dynamic"}
    within = {row["x_User"]: row for row in rows if row["PricingCategory"] == "Standard"}
    assert (set(above), set(within)) == ({"ann", "bo"}, {"ann", "bo", ""})
    # 2/3 h at 0.50, 1/3 h and 2/3 h at 4.00.
    costs = (above["ann"], above["bo"], within["bo"])
    assert [row["BilledCost"] for row in costs] == ["0.333333", "1.333333", "2.666667"]
    assert (above["ann"]["ListUnitPrice"], above["ann"]["BillingCurrency"]) == ("0.50", "EUR")
    where = (above["bo"]["SubAccountId"], above["bo"]["x_NodePool"], above["bo"]["SkuId"])
    assert where == ("ads", "default", "H100/above-quota")
    assert {row["ChargePeriodStart"] for row in rows} == {"2026-10-01T00:00:00Z"}


def run(
    monkeypatch: pytest.MonkeyPatch, *arguments: str, records: list[GpuUsageSpec] = RECORDS
) -> tuple[int, str, str]:
    def ask(*_: object) -> tuple[list[GpuUsageSpec], list[GpuProject]]:
        return records, [budgeted("ads").quota(1, gpu_hours=4).build()]

    monkeypatch.setattr(command, "ask", ask)
    result = CliRunner().invoke(report, ["usage", "--month", "2026-10", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_records_that_do_not_add_up_end_with_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    code, table, words = run(monkeypatch, records=RECORDS[1:])
    assert code == 1
    assert "total" in table
    assert "differ at 2026-10-01 01:00" in words


def test_the_same_figures_in_every_form(monkeypatch: pytest.MonkeyPatch) -> None:
    code, table, words = run(monkeypatch)
    assert code == 0
    assert "ads          2.00        1.00  3.00  0.00" in table
    assert "sum of the projects = what the node pools held: 5.00 GPU-hours" in words
    assert "ads has used 3.0 of its 4 GPU-hours in node pool default (75 %)\n" in words
    _, text, _ = run(monkeypatch, "-o", "csv", "--by", "project")
    told = list(csv.DictReader(io.StringIO(text)))
    assert told[0]["over_quota_gpu_seconds"] == "3600.000"
    _, text, _ = run(monkeypatch, "-o", "json")
    assert json.loads(text)["total"]["inQuotaMilliGpuSeconds"] == 4 * HOUR
    _, text, _ = run(monkeypatch, "-o", "focus")
    assert len(list(csv.DictReader(io.StringIO(text)))) == 5


def test_what_cannot_be_read_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "is not one of project" in run(monkeypatch, "--by", "team")[2]
    assert isinstance(make_report([], ["project"]), Report)
    assert "no records" in command.check_line(make_report([], ["project"]))
