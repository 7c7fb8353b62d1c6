"""Line charts as SVG text: one self-contained picture, no plotting library behind it.

The picture says everything by itself: title, both axes with round ticks, a legend in the order of
the series. Colours are told apart by colour-blind readers too (Okabe and Ito, 2008); from the ninth
series on they come again with dashes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

_COLOURS: Final = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#000000",
    "#8c8c00",
)
_DASHES: Final = ("", "7 4", "2 3", "9 3 2 3")
#: Pixels: the plot itself, and what surrounds it. The legend's width follows its longest name.
_PLOT_WIDTH: Final = 640
_PLOT_HEIGHT: Final = 380
_LEFT: Final = 88
_TOP: Final = 48
_BOTTOM: Final = 56
_LEGEND_LINE: Final = 20
_PIXELS_PER_LETTER: Final = 7.2
_N_TICKS: Final = 7


@dataclass(slots=True)
class Series:
    """One line of a chart: `points` are (x, y) in the order in which they are joined."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(slots=True)
class Axis:
    """The range that one axis shows, and the values that it names; all are multiples of `step`."""

    low: float
    high: float
    step: float

    def ticks(self) -> list[float]:
        """The values with a label, ascending."""
        first, last = round(self.low / self.step), round(self.high / self.step)
        return [at * self.step for at in range(first, last + 1)]

    def label(self, value: float) -> str:
        """`value` with as many digits as the step needs, thousands apart."""
        return f"{value:,.{max(0, -math.floor(math.log10(self.step) + 1e-9))}f}"

    def share(self, value: float) -> float:
        """Where `value` lies: 0 at the low end, 1 at the high end."""
        return (value - self.low) / (self.high - self.low)


def line_chart(title: str, x_label: str, y_label: str, series: Sequence[Series]) -> str:
    """One SVG document with a line for each of `series`. Points that are not finite are left out.

    Neighbours that fall on the same tenth of a pixel are drawn once, so a long series costs
    what the eye can see.
    """
    drawn = [
        Series(each.name, [at for at in each.points if all(map(math.isfinite, at))])
        for each in series
    ]
    x_axis = round_axis([x for each in drawn for x, _ in each.points])
    y_axis = round_axis([y for each in drawn for _, y in each.points])
    longest = max((len(each.name) for each in drawn), default=0)
    width = round(_LEFT + _PLOT_WIDTH + 60 + longest * _PIXELS_PER_LETTER)
    height = _TOP + max(_PLOT_HEIGHT, len(drawn) * _LEGEND_LINE) + _BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" '
        'font-family="system-ui, sans-serif" font-size="13" fill="#222">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="28" font-size="17" font-weight="600">{escape(title)}</text>',
        *_frame(x_axis, y_axis, x_label, y_label),
        *(_line(each, at, x_axis, y_axis) for at, each in enumerate(drawn)),
        *(_legend_entry(each.name, at) for at, each in enumerate(drawn)),
        "</svg>\n",
    ]
    return "\n".join(parts)


def round_axis(values: Sequence[float]) -> Axis:
    """An axis that holds all `values`, with about seven ticks at 1, 2 or 5 times a power of ten.

    It starts at zero when the values come near it; no values at all are shown as 0 to 1.
    """
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if 0 < low < 0.35 * high:
        low = 0.0
    if high <= low:
        low, high = (low - 0.5, low + 0.5) if low else (0.0, 1.0)
    rough = (high - low) / _N_TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return Axis(first * step, last * step, step)


def _x(value: float, axis: Axis) -> float:
    return _LEFT + _PLOT_WIDTH * axis.share(value)


def _y(value: float, axis: Axis) -> float:
    return _TOP + _PLOT_HEIGHT * (1 - axis.share(value))


def _frame(x_axis: Axis, y_axis: Axis, x_label: str, y_label: str) -> list[str]:
    """Grid, ticks and the words at both axes."""
    right, bottom = _LEFT + _PLOT_WIDTH, _TOP + _PLOT_HEIGHT
    parts = []
    for value in y_axis.ticks():
        y = _y(value, y_axis)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="#ddd"/>')
        parts.append(
            f'<text x="{_LEFT - 8}" y="{y + 4.5:.1f}" text-anchor="end">'
            f"{y_axis.label(value)}</text>"
        )
    for value in x_axis.ticks():
        x = _x(value, x_axis)
        parts.append(f'<path d="M{x:.1f} {_TOP}V{bottom + 5}" stroke="#ddd"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{x_axis.label(value)}</text>'
        )
    middle, halfway = _LEFT + _PLOT_WIDTH / 2, _TOP + _PLOT_HEIGHT / 2
    parts += [
        f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="#555"/>',
        f'<text x="{middle:.1f}" y="{bottom + 44}" text-anchor="middle">{escape(x_label)}</text>',
        f'<text transform="translate(17 {halfway:.1f}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_label)}</text>",
    ]
    return parts


def _line(series: Series, at: int, x_axis: Axis, y_axis: Axis) -> str:
    spots: list[str] = []
    for x, y in series.points:
        spot = f"{_x(x, x_axis):.1f} {_y(y, y_axis):.1f}"
        if not spots or spots[-1] != spot:
            spots.append(spot)
    path = f'<path d="M{"L".join(spots)}" fill="none" {_stroke(at)} stroke-linejoin="round"/>'
    return path if spots else ""


def _legend_entry(name: str, at: int) -> str:
    left, y = _LEFT + _PLOT_WIDTH + 18, _TOP + 8 + at * _LEGEND_LINE
    return (
        f'<path d="M{left} {y}h24" {_stroke(at)}/>'
        f'<text x="{left + 32}" y="{y + 4.5}">{escape(name)}</text>'
    )


def _stroke(at: int) -> str:
    dash = _DASHES[at // len(_COLOURS) % len(_DASHES)]
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'stroke="{_COLOURS[at % len(_COLOURS)]}" stroke-width="2"{dashed}'
