"""Figures, their table and their file."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

RESULT = Path("build/bench.json")


@dataclass(slots=True)
class Figure:
    """One measured value. `reference` is in the same unit; None: there is none.

    `ratio` is value / reference. `foreign_cores` is how many cores other programs used meanwhile.
    """

    name: str
    value: float
    unit: str
    reference: float | None = None
    ratio: float | None = None
    foreign_cores: float | None = None

    def __post_init__(self) -> None:
        if self.reference and self.ratio is None:
            self.ratio = round(self.value / self.reference, 3)


def percentile(values: list[float], percent: float) -> float:
    """The value below which `percent` of the sorted values lie (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def show(figures: list[Figure]) -> None:
    """Print the table and write `build/bench.json`."""
    table = Table("figure", "value", "unit", "reference", "ratio", "others' cores")
    for figure in figures:
        table.add_row(
            figure.name,
            f"{figure.value:g}",
            figure.unit,
            *map(_cell, (figure.reference, figure.ratio, figure.foreign_cores)),
        )
    Console().print(table)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps([asdict(figure) for figure in figures], indent=1) + "\n")


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:g}"
