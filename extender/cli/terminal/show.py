"""Prints answers as kubectl does: as a table, JSON, YAML or names, once or on every change.

Data goes to standard output, messages to standard error. Colour only emphasizes words for states;
it is omitted in pipes and with NO_COLOR.
"""

import json
import textwrap
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

#: Width of tables in a pipe, in characters.
WIDTH: Final = 200
#: Seconds between two requests with `-w`.
WATCH_S: Final = 2.0
#: Smallest width of a column that folds.
_FOLDED: Final = 28
#: Characters between two columns.
_GAP: Final = 2
#: Before a sentence that is below its line.
_INDENT: Final = "    "
#: Wider than any table.
_WIDEST: Final = 10_000

Answer = dict[str, Any]


@dataclass(slots=True, frozen=True)
class Column:
    """One column: its header, and the cell of an item: the value of a key, or of a function.

    `style` gives the colour of a cell. In a narrow terminal only columns of sentences fold; a name
    or number that is broken cannot be copied. A sparse column is left out of a terminal if it is
    empty for all items; in a pipe, scripts find it at the same place.
    """

    name: str
    cell: str | Callable[[Answer], object]
    is_wide: bool = False
    style: Callable[[Answer], str] | None = None
    folds: bool = False
    is_sparse: bool = False

    def cell_of(self, item: Answer) -> object:
        """The item's value in this column, "-" if it is empty."""
        if not isinstance(self.cell, str):
            return self.cell(item)
        found = item.get(self.cell)
        return "-" if found in (None, "") else found


@dataclass(slots=True, frozen=True)
class Listing:
    """How a list is shown: its columns, its names for `-o name`, and the message for no items.

    Namespace and `name` also identify an item among successive answers.
    """

    columns: Sequence[Column]
    name: Callable[[Answer], str]
    empty: str = "No resources found."


def show_list(how: How, listing: Listing, fetch: Callable[[], Answer]) -> None:
    """Print the `items` that `fetch` returns; with -w, print changed items until ^C."""
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
    """Sleep until the next request; ^C ends the command with code 130, as in kubectl."""
    try:
        time.sleep(WATCH_S)
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def show_object(how: How, answer: Answer, table: Callable[[Answer], None], name: str) -> None:
    """Print one answer; `table` prints it as text."""
    if how.output == "name":
        click.echo(name)
    elif not echo_data(how.output, answer):
        table(answer)


def echo_data(output: str, document: object) -> bool:
    """Print the document if the format is JSON or YAML; returns whether it is."""
    if output == "json":
        click.echo(json.dumps(document, indent=2))
        return True
    if output == "yaml":
        click.echo(as_yaml(document), nl=False)
        return True
    return False


def as_yaml(document: object) -> str:
    """The document as YAML, with keys in their order."""
    import yaml

    return yaml.safe_dump(document, sort_keys=False, width=100, allow_unicode=True)


def gpus(amount: str) -> str:
    """The amount with its unit: `1 GPU`, `0.5 GPUs`."""
    return f"{amount} {'GPU' if amount == '1' else 'GPUs'}"


def safe(text: object) -> str:
    """The text in one line, without control characters and rich markup."""
    from rich.markup import escape

    return escape(plain(str(text)))


def table_of(names: Iterable[str], *, no_headers: bool = False, folds: bool = True) -> "Table":
    """An empty table in kubectl's style; with `folds`, cells fold if the terminal is too narrow."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=not no_headers, header_style="bold")
    for name in names:
        table.add_column(name, overflow="fold", no_wrap=not folds)
    return table


def fits(table: "Table") -> bool:
    """Whether the terminal is wide enough for the table; a pipe always is."""
    console = wide_console(WIDTH)
    wide = console.options.update(max_width=_WIDEST)
    return not console.is_terminal or console.measure(table, options=wide).maximum <= console.width


def print_table(table: "Table") -> None:
    """Print the table: in a pipe, one line a row; in a terminal that is too narrow for columns that
    do not fold, the terminal wraps the lines."""
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
    """The header and cells of one column."""
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
    console = wide_console(WIDTH)
    shown = [
        column
        for column in listing.columns
        if (how.is_wide or not column.is_wide)
        and not (column.is_sparse and console.is_terminal and _is_empty(column, items))
    ]
    if not console.is_terminal or not any(column.folds for column in shown):
        _print_lines(console, shown, items, has_header=not how.no_headers)
        return
    if shown[-1].folds and _width(shown[:-1], items) + _FOLDED > console.width:
        _print_lines(console, shown[:-1], items, has_header=not how.no_headers, below=shown[-1])
        return
    table = table_of((column.name for column in shown), no_headers=how.no_headers)
    for made, column in zip(table.columns, shown, strict=True):
        made.no_wrap = not column.folds
    for item in items:
        table.add_row(*(_cell(column, item) for column in shown))
    print_table(table)


def _width(shown: Sequence[Column], items: Sequence[Answer]) -> int:
    """The width of these columns, with the gap after the last one."""
    from rich.cells import cell_len

    return sum(
        _GAP + max(cell_len(text) for text in (each.name, *(_text(each, item) for item in items)))
        for each in shown
    )


def _text(column: Column, item: Answer) -> str:
    return plain(str(column.cell_of(item)))


def _print_lines(
    console: "Console",
    shown: Sequence[Column],
    items: Sequence[Answer],
    *,
    has_header: bool,
    below: Column | None = None,
) -> None:
    """Print one line per item, and below it, indented, the sentence of the column `below`. Without
    rich, which takes about 1 ms for each: lists of pending workloads may have ten thousand."""
    from rich.cells import cell_len

    columns = [[_text(column, item) for item in items] for column in shown]
    headers = [column.name if has_header else "" for column in shown]
    widths = [
        max(map(cell_len, (header, *cells))) for header, cells in zip(headers, columns, strict=True)
    ]
    has_colour = console.is_terminal and not console.no_color

    def line(cells: Sequence[str], item: Answer | None = None) -> str:
        """The cells of a line, padded to the widths; colour codes do not count."""
        parts = []
        for column, cell, width in zip(shown, cells, widths, strict=True):
            colour = column.style(item) if item and column.style and has_colour else ""
            blanks = " " * (width - cell_len(cell) + _GAP)
            parts.append((click.style(cell, fg=colour) if colour else cell) + blanks)
        return "".join(parts).rstrip()

    lines = []
    for item, cells in zip(items, zip(*columns, strict=True), strict=True):
        lines.append(line(cells, item))
        if below is not None and (text := _text(below, item)) != "-":
            lines += _indented(text, console.width)
    if has_header:
        header = line(headers)
        lines.insert(0, click.style(header, bold=True) if console.is_terminal else header)
    click.echo("\n".join(lines), color=console.is_terminal)


def _indented(text: str, width: int) -> list[str]:
    """The text in lines of this width, broken between words."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=_INDENT,
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _is_empty(column: Column, items: Iterable[Answer]) -> bool:
    return all(column.cell_of(item) == "-" for item in items)


def _cell(column: Column, item: Answer) -> str:
    text = safe(column.cell_of(item))
    style = column.style(item) if column.style else ""
    return f"[{style}]{text}[/{style}]" if style else text


def _by_name(listing: Listing, answer: Mapping[str, Any]) -> dict[tuple[str, str], Answer]:
    """The items by namespace (empty if they have none) and name."""
    return {
        (item.get("namespace", ""), listing.name(item)): item for item in answer.get("items", ())
    }
