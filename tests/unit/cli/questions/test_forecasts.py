"""The text of forecasts."""

from datetime import UTC, datetime, timedelta
from typing import Any

from extender.cli.questions import forecasts

SOON = datetime.now(UTC).replace(hour=12, minute=40, second=0, microsecond=0)
HOUR = f"{SOON.astimezone():%H:%M}"


def said(word: str, **given: Any) -> dict[str, Any]:
    latest = {"earliest": f"{SOON:%FT%TZ}", "latest": f"{SOON:%FT%TZ}"}
    return {"word": word, **(latest if word != "no forecast" else {}), **given}


def test_a_promise_has_an_end_and_a_forecast_an_interval() -> None:
    assert forecasts.when(said("promised")).endswith(HOUR)
    assert forecasts.when(said("promised")).startswith("by ")
    assert " to " in forecasts.when(said("forecast"))
    assert forecasts.when(said("no forecast")) == "-"
    bound = said("no forecast", earliest=f"{SOON:%FT%TZ}", checked=9, held=8)
    assert forecasts.when(bound).startswith("not before ")
    assert forecasts.in_short(bound) == f"{forecasts.when(bound)} (no forecast, 8 of 9 held)"


def test_another_day_is_named() -> None:
    later = f"{SOON + timedelta(days=3):%FT%TZ}"
    assert f"{SOON + timedelta(days=3):%d %b}" in forecasts.when(said("promised", latest=later))


def test_how_often_it_held_stands_beside_it() -> None:
    assert forecasts.in_short(said("forecast", checked=9, held=7)).endswith(
        "(forecast, 7 of 9 held)"
    )
    assert forecasts.in_short(said("forecast")).endswith("(forecast)")
    assert "7 of the last 9" in forecasts.in_full(said("forecast", checked=9, held=7))
    assert "none in its project has come due" in forecasts.in_full(said("promised"))


def test_no_forecast_says_why() -> None:
    told = forecasts.in_full(said("no forecast", message="nothing states its run time"))
    assert told == "no forecast: nothing states its run time"
    assert forecasts.in_short(said("no forecast")) == "none"
