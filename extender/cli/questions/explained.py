"""The output of `ballast why`."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from extender.api.units import format_age
from extender.cli.questions import forecasts
from extender.cli.questions.listed import SHARES
from extender.cli.terminal.flags import How
from extender.cli.terminal.output import wide_console
from extender.cli.terminal.show import WIDTH, Answer, gpus, print_table, safe, show_list

if TYPE_CHECKING:
    from rich.console import Console

_STATES: Final = {
    "runs": "[green]RUNS[/green]",
    "starting": "[green]STARTING[/green]",
    "waits": "[yellow]WAITS[/yellow]",
    "never": "[red]WILL NEVER START[/red]",
}
_MOST_NODES: Final = 8


def print_explanation(answer: Answer) -> None:
    """Print an Explanation as text."""
    out = wide_console(WIDTH)
    _print_head(out, answer)
    _print_state(out, answer)
    if answer.get("forecast"):
        out.print()
        _print_rows([("FORECAST", safe(forecasts.in_full(answer["forecast"])))])
    if answer.get("queue"):
        out.print()
        queues = [answer["queue"], *answer.get("otherQueues", ())]
        show_list(How(), SHARES, lambda: {"items": queues})
    _print_pairs(out, "CHECKS", _checks(answer.get("checks", ())))
    ways = answer.get("waysOut", ())
    _print_pairs(
        out,
        "STARTS NOW IF   (each was tried on the cluster as it is)",
        ((safe(way["change"]), safe(way.get("effect", ""))) for way in ways),
    )
    if not_tried := answer.get("notTried"):
        said = f"not tried, since that would have taken too long: {', '.join(not_tried)}"
        _print_sentence(out, f"[dim]{safe(said)}[/dim]")
    if answer.get("help") and not ways:
        out.print()
        _print_sentence(out, safe(answer["help"]), indent=0)
    out.print(f"\n[dim]{safe(_as_of(answer))}[/dim]", soft_wrap=True)


def _print_head(out: "Console", answer: Answer) -> None:
    pods = "1 pod" if answer["pods"] == 1 else f"{answer['pods']} pods"
    kept = "preemptible" if answer["isPreemptible"] else "not preemptible"
    memory = f" ({answer['gpuMemory']} of memory)" if answer.get("gpuMemory") else ""
    head = (
        f"{answer.get('project', 'no project')}   {pods}, {gpus(answer['request'])}{memory}  "
        f" {answer['workKind']} ({answer['priority']})   {kept}"
    )
    out.print(f"[bold]{safe(answer['workload'])}[/bold]   {safe(head)}", soft_wrap=True)
    if answer.get("others"):
        out.print(f"[dim]the first of {answer['others'] + 1} of that name[/dim]", soft_wrap=True)
    out.print()


def _print_state(out: "Console", answer: Answer) -> None:
    line = _STATES[answer["state"]]
    if answer.get("waitsSince"):
        age = format_age(answer["waitsSince"])
        line += f" for {age}" if answer["state"] == "waits" else f", created {age} ago"
    if answer.get("reason"):
        line += f"   {safe(answer['reason'])}"
    if answer.get("nodes"):
        line += f"   on {safe(', '.join(answer['nodes'][:_MOST_NODES]))}"
    out.print(line, soft_wrap=True)
    if answer.get("message"):
        _print_sentence(out, safe(answer["message"]))
    if place := answer.get("place"):
        out.print(
            f"  {nth(place['inProject'])} of {place['ofProject']} in its project,"
            f" {nth(place['inPool'])} of {place['ofPool']} in its node"
            f" {'pools' if len(answer.get('nodePools', ())) > 1 else 'pool'}"
        )


def _print_sentence(out: "Console", text: str, *, indent: int = 2) -> None:
    """Print the text indented: wrapped in a terminal, as one line in a pipe."""
    from rich.padding import Padding

    if out.is_terminal:
        out.print(Padding(text, (0, 0, 0, indent)))
    else:
        out.print(f"{' ' * indent}{text}", soft_wrap=True)


def _checks(checks: Iterable[Answer]) -> Iterator[tuple[str, str]]:
    """The checks; a sentence of an earlier check is not repeated."""
    first: dict[str, str] = {}
    for check in checks:
        name, message = check["name"], check["message"]
        sign = {"yes": "[green]ok[/green]", "no": "[red]no[/red]"}.get(check["outcome"], "-")
        said = f"as for {first[message]}" if message in first else message
        first.setdefault(message, name)
        yield f"{sign} {safe(name)}", safe(said)


def _print_pairs(out: "Console", title: str, rows: Iterable[tuple[str, str]]) -> None:
    if indented := [(f"  {first}", second) for first, second in rows]:
        out.print(f"\n{title}")
        _print_rows(indented)


def _print_rows(rows: Iterable[tuple[str, str]]) -> None:
    """Two columns; the sentences of the second are broken between words on a terminal."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    print_table(table)


def _as_of(answer: Answer) -> str:
    as_of = answer["asOf"]
    said = f"as of {as_of['time']}, version {as_of['resourceVersion']}"
    if not answer.get("published"):
        return said
    agrees = answer.get("agrees", True)
    return f"{said}; the controller says {'the same' if agrees else answer['published']}"


def nth(n: int) -> str:
    """1 -> "1st"."""
    ending = "th" if 10 < n % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"
