"""Options and output that several commands share: trace folder, JSON file, progress bar, text."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

#: The file name that stands for standard output.
STDOUT: Final = "-"

data_option = click.option(
    "--data",
    "folder",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of the trace.",
)
json_option = click.option(
    "--json",
    "json_to",
    type=click.Path(dir_okay=False, allow_dash=True),
    help="Write all figures here; - is standard output.",
)


@dataclass(slots=True, frozen=True)
class Output:
    """The target of `--json`: a file, standard output, or none."""

    json_to: str | None

    def check(self) -> None:
        """Raise ClickException if the file's folder is missing, before the work begins."""
        # Standard output, "-", has the folder ".".
        if self.json_to and not (file := Path(self.json_to)).parent.is_dir():
            raise click.ClickException(f"{file}: there is no folder {file.parent}")

    def write(self, figures: Callable[[], Any]) -> None:
        """Compute and write the figures if `--json` is set; raises ClickException on failure."""
        if not self.json_to:
            return
        try:
            with click.open_file(self.json_to, "w", encoding="utf-8") as out:
                out.write(json.dumps(figures(), indent=1) + "\n")
        except OSError as error:
            raise click.ClickException(f"{self.json_to}: {error.strerror}") from None

    @property
    def has_table(self) -> bool:
        """Whether tables are printed: not if standard output gets the JSON."""
        return self.json_to != STDOUT


def bar() -> "Progress":
    """A progress bar on standard error; disabled if that is not a terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description:28}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    )


def wide_console(width: int) -> "Console":
    """The terminal; in a pipe, a console of this width, so that no table is cut."""
    from rich.console import Console

    # No automatic colours for numbers and quotes: colour marks states only.
    width_or_none = None if sys.stdout.isatty() else width
    return Console(width=width_or_none, highlight=False, emoji=False)


def plain(text: str) -> str:
    """The text in one line, with control characters escaped."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
