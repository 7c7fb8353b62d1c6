"""Forecasts of `ballast view` in words: when work starts, and how often such answers held."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any


def when(forecast: Mapping[str, Any]) -> str:
    """The interval: `by 14:40`, `14:40 to 15:30`, with the day where it is not today; or `-`."""
    earliest, latest = forecast.get("earliest", ""), forecast.get("latest", "")
    if not latest:
        return "-"
    if forecast["word"] == "promised":
        return f"by {_clock(latest)}"
    return f"{_clock(earliest)} to {_clock(latest)}"


def how_sure(forecast: Mapping[str, Any]) -> str:
    """The word, and of how many such answers in the project how many held."""
    checked = forecast.get("checked", 0)
    told: str = forecast["word"]
    if told == "no forecast":
        return told
    return f"{told}, {forecast.get('held', 0)} of {checked} held" if checked else told


def in_full(forecast: Mapping[str, Any]) -> str:
    """One line of all that is said."""
    parts = [f"{forecast['word']}: {when(forecast)}" if forecast.get("latest") else ""]
    parts.append(forecast.get("message", ""))
    if forecast["word"] != "no forecast":
        checked = forecast.get("checked", 0)
        held = f"{forecast.get('held', 0)} of the last {checked} in its project held"
        parts.append(held if checked else "none in its project has come due yet")
    said = "; ".join(filter(None, parts))
    return said if forecast.get("latest") else f"{forecast['word']}: {said}"


def _clock(text: str) -> str:
    """Hours and minutes in the local zone; the day too where it is another."""
    at = datetime.fromisoformat(text).astimezone()
    today = datetime.now(UTC).astimezone().date()
    return at.strftime("%H:%M" if at.date() == today else "%a %d %b %H:%M")
