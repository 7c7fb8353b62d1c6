"""The text of a forecast: when a workload starts, and how many past forecasts held."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

_NONE_YET: Final = "none in its project has come due yet"


def when(forecast: Mapping[str, Any]) -> str:
    """`by 14:40`, `14:40 to 15:30` or `not before 14:40`, with the day if it is not today."""
    earliest, latest = forecast.get("earliest", ""), forecast.get("latest", "")
    if not earliest:
        return "-"
    if not latest:
        return f"not before {_clock(earliest)}"
    if forecast["word"] == "promised":
        return f"by {_clock(latest)}"
    return f"{_clock(earliest)} to {_clock(latest)}"


def how_sure(forecast: Mapping[str, Any]) -> str:
    """The kind of forecast, and how many of those that were checked in the project held."""
    checked = forecast.get("checked", 0)
    word: str = forecast["word"]
    if not forecast.get("earliest") or not checked:
        return word
    return f"{word}, {forecast.get('held', 0)} of {checked} held"


def in_short(forecast: Mapping[str, Any]) -> str:
    """Such as `by 14:40 (promised, 7 of 9 held)`; `none` without a time."""
    return f"{when(forecast)} ({how_sure(forecast)})" if forecast.get("earliest") else "none"


def in_full(forecast: Mapping[str, Any]) -> str:
    """The whole forecast in one line."""
    if not forecast.get("earliest"):
        return f"{forecast['word']}: {forecast.get('message', '')}"
    checked = forecast.get("checked", 0)
    held = f"{forecast.get('held', 0)} of the last {checked} in its project held"
    parts = (when(forecast), forecast.get("message", ""), held if checked else _NONE_YET)
    return f"{forecast['word']}: {'; '.join(filter(None, parts))}"


def _clock(text: str) -> str:
    """Hours and minutes in the local time zone, with the day if it is not today."""
    at = datetime.fromisoformat(text).astimezone()
    today = datetime.now(UTC).astimezone().date()
    return at.strftime("%H:%M" if at.date() == today else "%a %d %b %H:%M")
