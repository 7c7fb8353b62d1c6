"""Charts: what they show, and that they hold together as documents."""

from xml.etree import ElementTree

import pytest

from extender.lab.chart import Series, line_chart, round_axis


def words(svg: str) -> list[str]:
    return [
        text for part in ElementTree.fromstring(svg).iter() if (text := part.text or "").strip()
    ]


def test_chart_names_title_axes_series_and_round_ticks() -> None:
    svg = line_chart("Results", "days", "GPUs", [Series("a & b", [(0, 3), (10, 61)])])
    shown = words(svg)
    assert shown.count("Results") == 2
    assert {"days", "GPUs", "a & b", "0", "10", "20", "60", "70"} <= set(shown)


def test_line_leaves_out_points_that_are_not_finite_or_not_visible() -> None:
    points = [(0.0, 0.0), (0.00001, 0.0), (5.0, float("nan")), (10.0, 1.0)]
    svg = line_chart("t", "x", "y", [Series("a", points)])
    drawn = [part.get("d", "") for part in ElementTree.fromstring(svg).iter() if part.get("d")]
    assert sum(path.count("L") == 1 for path in drawn) == 1


def test_chart_of_nothing_is_still_a_chart() -> None:
    assert "nothing" in words(line_chart("nothing", "x", "y", []))
    assert "empty" in words(line_chart("t", "x", "y", [Series("empty", [])]))


def test_more_series_than_colours_are_told_apart_by_dashes() -> None:
    svg = line_chart("t", "x", "y", [Series(str(at), [(0, at), (1, at)]) for at in range(20)])
    strokes = {
        (part.get("stroke"), part.get("stroke-dasharray"))
        for part in ElementTree.fromstring(svg).iter()
        if part.get("stroke-width") == "2"
    }
    assert len(strokes) == 20


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([0, 130], ["0", "20", "40", "60", "80", "100", "120", "140"]),
        ([80.1, 95.9], ["80", "85", "90", "95", "100"]),
        ([30, 100], ["0", "20", "40", "60", "80", "100"]),
        ([-5, 5], ["-6", "-4", "-2", "0", "2", "4", "6"]),
        ([0, 10000], ["0", "2,000", "4,000", "6,000", "8,000", "10,000"]),
        ([7, 7], ["6.4", "6.6", "6.8", "7.0", "7.2", "7.4", "7.6"]),
        ([], ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
    ],
)
def test_axes_are_round_and_hold_all_values(values: list[float], ticks: list[str]) -> None:
    axis = round_axis(values)
    assert [axis.label(value) for value in axis.ticks()] == ticks
    assert all(axis.low <= value <= axis.high for value in values)
