"""The report as one self-contained, printable page of HTML."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

import jinja2

from extender.shadow.answers import ShadowLook, ShadowReport
from extender.shadow.record import MOST_LINES

_HERE: Final = Path(__file__).parent
#: Rows of a table; the JSON has more.
MOST_ROWS: Final = 200
#: Size of the curve in SVG units.
_WIDE: Final = 960
_HIGH: Final = 180


def as_html(report: ShadowReport) -> str:
    """The whole page."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"duration": duration, "clock": clock, "percent": percent}
    figures = (
        figure for each in report.projects for figure in (each.owed, each.held, each.ballast_held)
    )
    return templates.get_template("report.html").render(
        report=report,
        most=MOST_ROWS,
        scale=max((float(each) for each in figures), default=0) or 1,
        curves=curves(report.series),
        most_kept=f"{MOST_LINES:,}",
        stopped=[each for each in report.stops if each.what == "stops"],
        moved=[each for each in report.stops if each.what == "moves"],
        size=(_WIDE, _HIGH),
    )


def duration(seconds: int) -> str:
    """Such as `42 s`, `13 min` or `2 h 5 min`."""
    if seconds < 120:
        return f"{seconds} s"
    minutes = seconds // 60
    if minutes < 120:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    return f"{hours // 24} d {hours % 24} h"


def clock(time: str) -> str:
    """An API time for display: date and minute, in UTC."""
    return f"{datetime.fromisoformat(time):%Y-%m-%d %H:%M} UTC"


def percent(figure: str, scale: float) -> float:
    """The figure in percent of the scale."""
    return round(100 * float(figure) / scale, 2)


def curves(series: list[ShadowLook]) -> dict[str, str]:
    """Points of polylines by the name of their figure; empty for fewer than three looks."""
    if len(series) < 3:
        return {}
    names = ("held", "ballast_held", "waiting")
    times = [datetime.fromisoformat(each.time).timestamp() for each in series]
    span = (times[-1] - times[0]) or 1
    top = max(float(getattr(each, name)) for each in series for name in names) or 1

    def points(name: str) -> Iterator[str]:
        for at, each in zip(times, series, strict=True):
            y = _HIGH * (1 - float(getattr(each, name)) / top)
            yield f"{(at - times[0]) / span * _WIDE:.1f},{y:.1f}"

    return {name: " ".join(points(name)) for name in names} | {"top": f"{top:g}"}
