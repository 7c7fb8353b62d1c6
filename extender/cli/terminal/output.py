"""Options and output that several commands share: trace folder, progress bar, text."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

data_option = click.option(
    "--data",
    "folder",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of the trace.",
)


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


def sentence_console() -> "Console":
    """The terminal, where sentences are broken between words; in a pipe each stays one line."""
    from rich.console import Console

    console = Console(highlight=False, emoji=False)
    console.soft_wrap = not console.is_terminal
    return console


def plain(text: str) -> str:
    """The text in one line, with control characters escaped."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
