"""What commands take and give alike: the trace's folder, a bar, figures, a picture, plain text."""

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
picture_option = click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a chart (SVG) here.",
)


@dataclass(slots=True, frozen=True)
class Output:
    """Where the results go besides the terminal, as the options `--json` and `--picture` say."""

    json_to: str | None
    picture: Path | None

    def check(self) -> None:
        """Say before the work, not after it, what can't be written; raises ClickException."""
        if self.picture and self.json_to and self.picture == Path(self.json_to):
            raise click.ClickException(f"{self.picture}: --json and --picture both write there")
        for name in (self.picture, self.json_to):
            # Standard output's "-" has the folder ".".
            if name and not (file := Path(name)).parent.is_dir():
                raise click.ClickException(f"{file}: there is no folder {file.parent}")

    def write(self, figures: Callable[[], Any], chart: Callable[[], str]) -> None:
        """Make and write what was asked for; raises ClickException where it can't be written."""
        try:
            if self.picture:
                self.picture.write_text(chart(), encoding="utf-8")
            if self.json_to:
                with click.open_file(self.json_to, "w", encoding="utf-8") as out:
                    out.write(json.dumps(figures(), indent=1) + "\n")
        except OSError as error:
            file = error.filename or " or ".join(str(n) for n in (self.picture, self.json_to) if n)
            raise click.ClickException(f"{file}: {error.strerror}") from None

    @property
    def has_table(self) -> bool:
        """Tables are left out where figures go to standard output, which is then JSON alone."""
        return self.json_to != STDOUT


def bar() -> "Progress":
    """A bar on standard error; nothing where that is no terminal."""
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
    """The terminal; elsewhere as wide as the widest table: a table that is cut is no table."""
    from rich.console import Console

    # Colour is said where it means something: numbers and quotes have none.
    width_or_none = None if sys.stdout.isatty() else width
    return Console(width=width_or_none, highlight=False, emoji=False)


def plain(text: str) -> str:
    """The text in one line, with what a terminal would act on shown as Python writes it."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
