"""Printing answers as kubectl prints objects: a table, JSON, YAML or names; once, or as it changes.

Data goes to standard output, words about it to standard error. Colour stands on words of state
only, never alone, and is left out in pipes and where NO_COLOR says so.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from extender.cli.flags import How
from extender.cli.output import plain, wide_console

if TYPE_CHECKING:
    from rich.table import Table

#: As wide as tables are in a pipe.
WIDTH: Final = 200
#: Seconds between two questions of a command that watches.
WATCH_S: Final = 2.0

Answer = dict[str, Any]


@dataclass(slots=True, frozen=True)
class Column:
    """One column: its header, and the cell of an item. `style` colours a cell by its text."""

    name: str
    cell: Callable[[Answer], object]
    is_wide: bool = False
    style: Callable[[Answer], str] | None = None


@dataclass(slots=True, frozen=True)
class Listing:
    """How a list is shown: its columns, what `-o name` prints, and the sentence for no items.

    `name` also tells the items of two answers apart.
    """

    columns: Sequence[Column]
    name: Callable[[Answer], str]
    empty: str = "No resources found."


def show_list(how: How, listing: Listing, fetch: Callable[[], Answer]) -> None:
    """Print the `items` of what `fetch` returns, and with -w those that change, until ^C."""
    told = fetch()
    _print_list(how, listing, told)
    if not how.is_watched:
        return
    before = _by_name(listing, told)
    follow = How(how.output, no_headers=True)
    while True:
        wait()
        told = fetch()
        now = _by_name(listing, told)
        changed = [item for name, item in now.items() if before.get(name) != item]
        if changed:
            _print_list(follow, listing, {**told, "items": changed})
        before = now


def wait() -> None:
    """Until it is time to ask again; ends the command at ^C, as kubectl does."""
    try:
        time.sleep(WATCH_S)
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def show_object(how: How, told: Answer, table: Callable[[Answer], None], name: str) -> None:
    """Print one answer: `table` prints it for people."""
    if how.output == "name":
        click.echo(name)
    elif not echo_data(how.output, told):
        table(told)


def echo_data(output: str, told: object) -> bool:
    """Whether the format is one for programs, which is printed here."""
    if output == "json":
        click.echo(json.dumps(told, indent=2))
        return True
    if output == "yaml":
        click.echo(as_yaml(told), nl=False)
        return True
    return False


def as_yaml(told: object) -> str:
    """The document, its keys in their order."""
    import yaml

    return yaml.safe_dump(told, sort_keys=False, width=100, allow_unicode=True)


def safe(text: object) -> str:
    """The text as a cell: in one line, with nothing that a terminal or rich would act on."""
    from rich.markup import escape

    return escape(plain(str(text)))


def table_of(names: Iterable[str], *, no_headers: bool = False) -> "Table":
    """An empty table as kubectl's are; cells fold where the terminal has no room for them."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=not no_headers, header_style="bold")
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def print_table(table: "Table") -> None:
    """Print it, in a pipe as wide as it needs to be."""
    wide_console(WIDTH).print(table)


def _print_list(how: How, listing: Listing, told: Answer) -> None:
    if how.output == "name":
        for item in told.get("items", ()):
            click.echo(plain(listing.name(item)))
        return
    if echo_data(how.output, told):
        return
    items = told.get("items", ())
    if not items:
        click.echo(listing.empty, err=True)
        return
    shown = [column for column in listing.columns if how.is_wide or not column.is_wide]
    table = table_of((column.name for column in shown), no_headers=how.no_headers)
    for item in items:
        table.add_row(*(_cell(column, item) for column in shown))
    print_table(table)


def _cell(column: Column, item: Answer) -> str:
    text = safe(column.cell(item))
    style = column.style(item) if column.style else ""
    return f"[{style}]{text}[/{style}]" if style else text


def _by_name(listing: Listing, told: Mapping[str, Any]) -> dict[str, Answer]:
    return {listing.name(item): item for item in told.get("items", ())}
