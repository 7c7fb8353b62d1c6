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

from extender.cli.terminal.flags import How
from extender.cli.terminal.output import plain, wide_console

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Column as TableColumn
    from rich.table import Table

#: As wide as tables are in a pipe.
WIDTH: Final = 200
#: Seconds between two questions of a command that watches.
WATCH_S: Final = 2.0
#: The least that a column of sentences is narrowed to.
_FOLDED: Final = 28
#: Characters between two columns, and more than any table has.
_GAP: Final = 2
_WIDEST: Final = 10_000

Answer = dict[str, Any]


@dataclass(slots=True, frozen=True)
class Column:
    """One column: its header, and the cell of an item (a key of it, or what is made of it), which
    `style` colours.

    Only columns that fold, those of sentences, are broken where the terminal is too narrow: a name
    or a figure that is broken cannot be read or copied.
    """

    name: str
    cell: str | Callable[[Answer], object]
    is_wide: bool = False
    style: Callable[[Answer], str] | None = None
    folds: bool = False

    def cell_of(self, item: Answer) -> object:
        """What the item has in this column, "-" where it has nothing."""
        if not isinstance(self.cell, str):
            return self.cell(item)
        found = item.get(self.cell)
        return "-" if found in (None, "") else found


@dataclass(slots=True, frozen=True)
class Listing:
    """How a list is shown: its columns, what `-o name` prints, and the sentence for no items.

    `name` and the namespace also tell the items of two answers apart.
    """

    columns: Sequence[Column]
    name: Callable[[Answer], str]
    empty: str = "No resources found."


def show_list(how: How, listing: Listing, fetch: Callable[[], Answer]) -> None:
    """Print the `items` of what `fetch` returns, and with -w those that change, until ^C."""
    answer = fetch()
    _print_list(how, listing, answer)
    if not how.is_watched:
        return
    before = _by_name(listing, answer)
    follow = How(how.output, no_headers=True)
    while True:
        wait()
        answer = fetch()
        now = _by_name(listing, answer)
        changed = [item for name, item in now.items() if before.get(name) != item]
        if changed:
            _print_list(follow, listing, {**answer, "items": changed})
        before = now


def wait() -> None:
    """Until it is time to ask again; ends the command at ^C, as kubectl does."""
    try:
        time.sleep(WATCH_S)
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def show_object(how: How, answer: Answer, table: Callable[[Answer], None], name: str) -> None:
    """Print one answer: `table` prints it for people."""
    if how.output == "name":
        click.echo(name)
    elif not echo_data(how.output, answer):
        table(answer)


def echo_data(output: str, document: object) -> bool:
    """Whether the format is one for programs, which is printed here."""
    if output == "json":
        click.echo(json.dumps(document, indent=2))
        return True
    if output == "yaml":
        click.echo(as_yaml(document), nl=False)
        return True
    return False


def as_yaml(document: object) -> str:
    """The document, its keys in their order."""
    import yaml

    return yaml.safe_dump(document, sort_keys=False, width=100, allow_unicode=True)


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
    """Print it. A pipe gets each row as one line; a terminal that has no room for cells that do not
    fold breaks the lines itself."""
    from rich.measure import Measurement

    console = wide_console(WIDTH)
    wide = console.options.update(max_width=_WIDEST)
    for column in table.columns:
        cells = Measurement.get(console, wide, _only(column, table.show_header))
        is_whole = column.no_wrap or not console.is_terminal
        column.min_width = cells.maximum if is_whole else min(_FOLDED, cells.maximum)
    needed = sum((column.min_width or 0) + _GAP for column in table.columns)
    console.width = max(console.width, needed - _GAP)
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def _only(column: "TableColumn", has_header: bool) -> "Group":
    """The cells of one column."""
    from rich.console import Group

    header = [column.header] if has_header else []
    return Group(*header, *column.cells)


def _print_list(how: How, listing: Listing, answer: Answer) -> None:
    if how.output == "name":
        for item in answer.get("items", ()):
            click.echo(plain(listing.name(item)))
        return
    if echo_data(how.output, answer):
        return
    items = answer.get("items", ())
    if not items:
        click.echo(listing.empty, err=True)
        return
    shown = [column for column in listing.columns if how.is_wide or not column.is_wide]
    console = wide_console(WIDTH)
    if not console.is_terminal or not any(column.folds for column in shown):
        _print_lines(console, shown, items, has_header=not how.no_headers)
        return
    table = table_of((column.name for column in shown), no_headers=how.no_headers)
    for made, column in zip(table.columns, shown, strict=True):
        made.no_wrap = not column.folds
    for item in items:
        table.add_row(*(_cell(column, item) for column in shown))
    print_table(table)


def _print_lines(
    console: "Console", shown: Sequence[Column], items: Sequence[Answer], *, has_header: bool
) -> None:
    """One line for each item. Rich takes a millisecond for each, and ten thousand may wait."""
    from rich.cells import cell_len

    columns = [[plain(str(column.cell_of(item))) for item in items] for column in shown]
    headers = [column.name if has_header else "" for column in shown]
    widths = [
        max(map(cell_len, (header, *cells))) for header, cells in zip(headers, columns, strict=True)
    ]
    has_colour = console.is_terminal and not console.no_color

    def line(cells: Sequence[str], item: Answer | None = None) -> str:
        """Padded after its colour, so that codes have no width."""
        parts = []
        for column, cell, width in zip(shown, cells, widths, strict=True):
            colour = column.style(item) if item and column.style and has_colour else ""
            blanks = " " * (width - cell_len(cell) + _GAP)
            parts.append((click.style(cell, fg=colour) if colour else cell) + blanks)
        return "".join(parts).rstrip()

    lines = [
        line(cells, item) for item, cells in zip(items, zip(*columns, strict=True), strict=True)
    ]
    if has_header:
        header = line(headers)
        lines.insert(0, click.style(header, bold=True) if console.is_terminal else header)
    click.echo("\n".join(lines), color=console.is_terminal)


def _cell(column: Column, item: Answer) -> str:
    text = safe(column.cell_of(item))
    style = column.style(item) if column.style else ""
    return f"[{style}]{text}[/{style}]" if style else text


def _by_name(listing: Listing, answer: Mapping[str, Any]) -> dict[tuple[str, str], Answer]:
    """The items by namespace, which is empty where they have none, and name."""
    return {
        (item.get("namespace", ""), listing.name(item)): item for item in answer.get("items", ())
    }
