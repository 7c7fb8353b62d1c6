"""The command `ballast whatif`: on the cluster, by `ballast view`, or on a scenario file."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from extender.cli.completion.names import complete_project
from extender.cli.terminal.flags import How, Where, cluster_flags, examples, format_flag

if TYPE_CHECKING:
    from extender.view.picture import Picture

Figure = TypeVar("Figure", str, int)
#: The longest message beside the figures of a change in a terminal.
_SHORT: Final = 30
#: The sign of each change.
SIGNS: Final = {
    "starts": "[green]+[/green]",
    "stops": "[red]-[/red]",
    "moves": "[yellow]~[/yellow]",
    "stays": "[green]=[/green]",
    "waits": "[yellow].[/yellow]",
    "cannot move": "[red]![/red]",
}


@click.command(
    epilog=examples(
        "kubectl ballast whatif --quota vision=12 --quota search=4",
        "kubectl ballast whatif --drain gpu-07",
        "kubectl ballast whatif --job vision=4x8",
        "ballast whatif --file now.yaml --limit vision=16",
    )
)
@click.option(
    "--quota", "quotas", multiple=True, metavar="PROJECT=GPUS", help="Change the quota.",
    shell_complete=complete_project,
)  # fmt: skip
@click.option(
    "--limit", "limits", multiple=True, metavar="PROJECT=GPUS", help="Change the limit.",
    shell_complete=complete_project,
)  # fmt: skip
@click.option(
    "--budget", "budgets", multiple=True, metavar="PROJECT=HOURS",
    help="Change the budget of GPU-hours per month.", shell_complete=complete_project,
)  # fmt: skip
@click.option("--drain", multiple=True, metavar="NODE", help="Drain the node.")
@click.option("--add-nodes", multiple=True, metavar="NODE=COUNT", help="Add nodes like NODE.")
@click.option(
    "--job", "jobs", multiple=True, metavar="PROJECT=PODSxGPUS", help="Submit a job, such as a=4x1."
)
@click.option(
    "-f",
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Decide on this scenario file instead of the cluster.",
)
@format_flag(("table", "json", "yaml"))
@cluster_flags
def whatif(file: Path | None, output: str, where: Where, **given: tuple[str, ...]) -> None:
    """Show how the next decision would differ; nothing is changed.

    Every option may be given more than once. --quota and --limit take a department, too, and a name
    may be written NAME/NODEPOOL. The exit code is 5 if work would stop or a drain would hang, so
    that a pipeline can check a change of quotas, and 1 if there is no answer.
    """
    from extender.cli.terminal.exits import OK, STOPS
    from extender.cli.terminal.show import show_object

    spec = _spec(given)
    answer = _on_file(file, spec) if file else _on_cluster(where, spec)
    show_object(How(output), answer, print_changes, "simulation")
    worst = {change["what"] for change in answer["status"].get("changes", ())}
    raise SystemExit(STOPS if worst & {"stops", "cannot move"} else OK)


def _spec(given: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    spec = {
        "quotas": _once((_gpus(each, "--quota") for each in given["quotas"]), "--quota"),
        "limits": _once((_gpus(each, "--limit") for each in given["limits"]), "--limit"),
        "budgets": _once(map(_hours, given["budgets"]), "--budget"),
        "drain": list(given["drain"]),
        "addNodes": [_added(each) for each in given["add_nodes"]],
        "jobs": [_job(each) for each in given["jobs"]],
    }
    if not any(spec.values()):
        raise click.UsageError("give at least one change, such as --quota; see --help")
    return spec


def _on_cluster(where: Where, spec: dict[str, Any]) -> dict[str, Any]:
    from extender.api.names import VIEW_PATH
    from extender.cli.ask import DEADLINE_S, answer_to
    from extender.kube.transport import Call

    call = Call("POST", f"{VIEW_PATH}/simulations", body={"spec": spec}, deadline_s=DEADLINE_S)
    return answer_to(where, call)


def _on_file(path: Path, spec: dict[str, Any]) -> dict[str, Any]:
    """The same answer for the first case of the file; raises ClickException."""
    import msgspec

    from extender.view.answers import AsOf, Simulation, SimulationSpec
    from extender.view.picture import BadChangeError
    from extender.view.simulate import simulate

    try:
        asked = msgspec.convert(spec, SimulationSpec)
        status = simulate(_picture_of(path), asked, AsOf("", ""))
    except (BadChangeError, msgspec.ValidationError) as error:
        raise click.ClickException(str(error)) from None
    answer: dict[str, Any] = msgspec.to_builtins(Simulation(spec=asked, status=status))
    return answer


def _picture_of(path: Path) -> "Picture":
    from extender.scenario.errors import ScenarioError
    from extender.scenario.load import load
    from extender.scenario.snapshot import settings_now, take_snapshot
    from extender.scenario.world import World
    from extender.view.picture import Picture

    loaded = load([path])
    if loaded.broken:
        raise click.ClickException(loaded.broken[0].why)
    first, *others = loaded.cases
    if others:
        click.echo(f"Note: {path} has {len(loaded.cases)} cases; this is {first.id}", err=True)
    try:
        world = World.of(first)
    except ScenarioError as error:
        raise click.ClickException(f"{path}: {error}") from None
    return Picture(take_snapshot(world), settings_now(world))


def _once(pairs: Iterable[tuple[str, Figure]], option: str) -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    for name, figure in pairs:
        if name in found:
            raise click.BadParameter(f"{name} is named twice", param_hint=option)
        found[name] = figure
    return found


def _gpus(text: str, option: str) -> tuple[str, str]:
    from extender.api.units import UnitError, parse_gpus

    name, figure = _pair(text, option)
    try:
        parse_gpus(figure)
    except UnitError as error:
        raise click.BadParameter(f"{name}: {error}", param_hint=option) from None
    return name, figure


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, figure = text.rpartition("=")
    if not equals or not name or not figure:
        raise click.BadParameter(f"{text!r} is not NAME=NUMBER, such as a=8", param_hint=option)
    return name, figure


def _hours(text: str) -> tuple[str, int]:
    name, hours = _pair(text, "--budget")
    if not hours.isdecimal():
        raise click.BadParameter(f"{hours!r} is not a whole number of hours", param_hint="--budget")
    return name, int(hours)


def _added(text: str) -> dict[str, Any]:
    like, count = _pair(text, "--add-nodes")
    if not count.isdecimal():
        raise click.BadParameter(f"{count!r} is not a number", param_hint="--add-nodes")
    return {"like": like, "count": int(count)}


def _job(text: str) -> dict[str, Any]:
    project, size = _pair(text, "--job")
    pods, times, gpus = size.partition("x")
    if not times or not pods.isdecimal() or not gpus:
        message = f"{text!r} is not PROJECT=PODSxGPUS, such as a=4x1 or a=1x0.5"
        raise click.BadParameter(message, param_hint="--job")
    return {"project": project, "pods": int(pods), "gpus": gpus}


def print_changes(answer: dict[str, Any]) -> None:
    """Print what a simulation changes: in a terminal, sentences are below the figures."""
    from rich.table import Table

    from extender.cli.terminal.output import wide_console
    from extender.cli.terminal.show import WIDTH, gpus, print_table, safe

    status, out = answer["status"], wide_console(WIDTH)
    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(2):
        table.add_column(no_wrap=True)
    for change in status.get("changes", ()):
        lost = f"loses {change['lost']} GPU-h" if change.get("lost") else ""
        words = [safe(change["what"]), gpus(change["request"]), lost]
        message = safe(change.get("message", ""))
        sign = f" {SIGNS.get(change['what'], ' ')}"
        if out.is_terminal:
            figures, gap = "  ".join(filter(None, words)), "\n" if len(message) > _SHORT else "  "
            words, message = [], f"{figures}{gap}{message}".rstrip()
        table.add_row(sign, safe(change["workload"]), *words, message)
    if table.row_count:
        print_table(table)
    else:
        out.print("The next decision would be the same.")
    out.print(
        f"held {status['heldBefore']} -> {status['heldAfter']} GPUs,"
        f" waiting {status['waitingBefore']} -> {status['waitingAfter']} GPUs,"
        f" lost {status.get('lostBefore', '0')} -> {status.get('lostAfter', '0')} GPU-hours"
    )
    click.echo("One decision was made on a changed copy; nothing was changed.", err=True)
