"""The report as an HTML page."""

import re

from extender.shadow.page import as_html, clock, curves, duration
from extender.shadow.record import Record
from tests.unit.shadow.test_adoption import NOW_S, on, plain
from tests.unit.shadow.test_record import look


def told(n_looks: int = 1) -> str:
    record = Record(is_by_namespace=True)
    running = [on(plain(f"a{i}").build(), "n1") for i in range(2)]
    for number in range(n_looks):
        look(record, NOW_S + 60 * number, *running, plain("b", "team-b").build())
    return as_html(record.report())


def test_page_says_who_starts_who_stops_and_for_whom() -> None:
    page = told()
    assert "team-b/b" in page
    assert "starts now" in page
    assert "once 1 pod of team-a leaves" in page
    assert "Each namespace with GPU pods counts as a project" in page
    assert "do not say how long they run" in page


def test_page_loads_nothing_and_runs_nothing() -> None:
    page = told(4)
    assert not re.search(r"<script|<link|<img|https?://|url\(|@import", page)


def test_names_are_text_and_no_markup() -> None:
    record = Record()
    look(record, NOW_S, plain("<b>x</b>").build())
    assert "<b>x</b>" not in as_html(record.report())


def test_curve_is_drawn_for_three_looks_and_more() -> None:
    record = Record()
    for number in range(3):
        assert curves(record.report().series if number else []) == {}
        look(record, NOW_S + 60 * number, plain("a").build())
    assert curves(record.report().series)["waiting"].startswith("0.0,0.0 480.0,")
    assert "polyline" in told(3)


def test_durations_and_times_are_for_people() -> None:
    assert [duration(each) for each in (42, 780, 7500, 7200, 200_000)] == [
        "42 s", "13 min", "2 h 5 min", "2 h", "2 d 7 h",
    ]  # fmt: skip
    assert clock("2026-11-25T12:01:02Z") == "2026-11-25 12:01 UTC"
