"""Questions to the API `view.ballast.dev` as commands: `why`, `queue`, `shares`, `whatif`.

Data goes to standard output, words about it to standard error; `-o json` and `-o yaml` give the
answer as the API gave it.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import click
import yaml
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from extender.api.units import format_age
from extender.cli import forecasts
from extender.cli.output import plain, wide_console
from extender.kube.client import Client
from extender.kube.connection import namespace_of
from extender.kube.errors import KubeError, NotFound, Unavailable
from extender.kube.transport import Call

_ROOT: Final = "/apis/view.ballast.dev/v1alpha1"
#: Explaining a workload takes a few dozen decisions.
_DEADLINE_S: Final = 60.0
_WIDTH: Final = 200
#: How the message of an error begins.
_REQUEST: Final = re.compile(r"^(GET|POST) \S+: \d+ \w+: ")
#: Exit codes of `why`, for scripts.
WAITS: Final = 3
NEVER: Final = 4
_EXIT_OF: Final = {"waits": WAITS, "never": NEVER}
_STATES: Final = {
    "runs": "[green]RUNS[/green]",
    "starting": "[green]STARTING[/green]",
    "waits": "[yellow]WAITS[/yellow]",
    "never": "[red]WILL NEVER START[/red]",
}
_SIGNS: Final = {
    "starts": "[green]+[/green]",
    "stops": "[red]-[/red]",
    "moves": "[yellow]~[/yellow]",
    "waits": "[yellow].[/yellow]",
    "cannot move": "[red]![/red]",
}

_Answer = dict[str, Any]


def _with_cluster(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that every command has, as kubectl has them."""
    for option in (
        click.option("--kubeconfig", default="", help="Default: $KUBECONFIG, else ~/.kube/config."),
        click.option("--context", default="", help="Context of the kubeconfig."),
        click.option(
            "-o",
            "--output",
            type=click.Choice(["table", "json", "yaml"]),
            default="table",
            show_default=True,
        ),
    ):
        command = option(command)
    return command


_namespace = click.option("-n", "--namespace", default="", help="Default: as the context says.")


@click.command()
@click.argument("name")
@_namespace
@_with_cluster
def why(name: str, namespace: str, output: str, **where: str) -> None:
    """Say why NAME waits, and what would let it start.

    NAME is a pod, a GpuPodGroup, or what made the pods: NAME, pod/NAME, job/NAME. Exit code 0 if it
    runs or starts, 3 if it waits, 4 if it will never start.
    """
    space = namespace or namespace_of(where["kubeconfig"], where["context"])
    path = f"{_ROOT}/namespaces/{space}/explanations/{name.rpartition('/')[2]}"
    told = _ask(Call("GET", path, deadline_s=_DEADLINE_S), where)
    _print(told, output, _print_explanation)
    raise SystemExit(_EXIT_OF.get(told["state"], 0))


@click.command()
@_namespace
@click.option("-A", "--all-namespaces", is_flag=True, help="Name the work of all namespaces.")
@_with_cluster
def queue(namespace: str, all_namespaces: bool, output: str, **where: str) -> None:
    """List what waits, in the order in which it has its turn.

    Work of other namespaces is shown as its project and size, unless -A is given, which needs the
    right to list it.
    """
    space = namespace or namespace_of(where["kubeconfig"], where["context"])
    path = f"{_ROOT}/queues" if all_namespaces else f"{_ROOT}/namespaces/{space}/queues"
    _print(_ask(Call("GET", path, deadline_s=_DEADLINE_S), where), output, _print_queue)


@click.command()
@_with_cluster
def shares(output: str, **where: str) -> None:
    """Show what departments and projects may have, are owed and have, in GPUs."""
    told = _ask(Call("GET", f"{_ROOT}/shares", deadline_s=_DEADLINE_S), where)
    _print(told, output, lambda answer: _print_shares(answer["items"]))


@click.command()
@click.option("--quota", "quotas", multiple=True, metavar="PROJECT=GPUS", help="Another quota.")
@click.option("--limit", "limits", multiple=True, metavar="PROJECT=GPUS", help="Another limit.")
@click.option("--drain", multiple=True, metavar="NODE", help="The node is drained.")
@click.option("--add-nodes", multiple=True, metavar="NODE=COUNT", help="More nodes like NODE.")
@click.option(
    "--job", "jobs", multiple=True, metavar="PROJECT=PODSxGPUS", help="A job, such as a=4x1."
)
@_with_cluster
def whatif(
    quotas: tuple[str, ...],
    limits: tuple[str, ...],
    drain: tuple[str, ...],
    add_nodes: tuple[str, ...],
    jobs: tuple[str, ...],
    output: str,
    **where: str,
) -> None:
    """Show how the next decision would differ; nothing is changed.

    Every option may be given more than once. A project may be written PROJECT/NODEPOOL. Exit code 1
    if work would stop or a drain would hang, which makes it a check for a change of quotas.
    """
    spec = {
        "quotas": dict(_pair(each, "--quota") for each in quotas),
        "limits": dict(_pair(each, "--limit") for each in limits),
        "drain": list(drain),
        "addNodes": [_added(each) for each in add_nodes],
        "jobs": [_job(each) for each in jobs],
    }
    if not any(spec.values()):
        raise click.UsageError("say what is to be different; see --help")
    call = Call("POST", f"{_ROOT}/simulations", body={"spec": spec}, deadline_s=_DEADLINE_S)
    told = _ask(call, where)
    _print(told, output, _print_simulation)
    worst = {change["what"] for change in told["status"].get("changes", ())}
    raise SystemExit(1 if worst & {"stops", "cannot move"} else 0)


# -- asking ----------------------------------------------------------------------------------


def _ask(call: Call, where: Mapping[str, str]) -> _Answer:
    """The answer; raises ClickException where there is none."""
    try:
        return asyncio.run(_send(call, where))
    except NotFound as error:
        told = _said(error)
        if "could not find the requested resource" in told or "page not found" in told:
            told = (
                "this cluster does not answer questions: kubectl apply -k manifests/overlays/view"
                " installs what does"
            )
        raise click.ClickException(plain(told)) from None
    except Unavailable as error:
        raise click.ClickException(
            f"ballast view does not answer: {plain(error.message)}"
        ) from None
    except KubeError as error:
        raise click.ClickException(plain(_said(error))) from None


def _said(error: KubeError) -> str:
    """What the API server said, without the request that it said it of."""
    return _REQUEST.sub("", error.message)


async def _send(call: Call, where: Mapping[str, str]) -> _Answer:
    connected = await Client.connect(
        where["kubeconfig"] or None, context=where["context"] or None, user_agent="kubectl-ballast"
    )
    async with connected as client:
        answer: _Answer = json.loads(await client.send(call))
        return answer


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, figure = text.rpartition("=")
    if not equals or not name or not figure:
        raise click.BadParameter(f"{text!r} is not NAME=NUMBER, such as a=8", param_hint=option)
    return name, figure


def _added(text: str) -> dict[str, Any]:
    like, count = _pair(text, "--add-nodes")
    if not count.isdecimal():
        raise click.BadParameter(f"{count!r} is not a number", param_hint="--add-nodes")
    return {"like": like, "count": int(count)}


def _job(text: str) -> dict[str, Any]:
    project, size = _pair(text, "--job")
    pods, times, gpus = size.partition("x")
    if not times or not pods.isdecimal():
        told = f"{text!r} is not PROJECT=PODSxGPUS, such as a=4x1 or a=1x0.5"
        raise click.BadParameter(told, param_hint="--job")
    return {"project": project, "pods": int(pods), "gpus": gpus}


# -- printing --------------------------------------------------------------------------------


def _print(told: _Answer, output: str, table: Callable[[_Answer], None]) -> None:
    if output == "json":
        click.echo(json.dumps(told, indent=2))
    elif output == "yaml":
        click.echo(yaml.safe_dump(told, sort_keys=False), nl=False)
    else:
        table(told)


def _safe(text: object) -> str:
    return escape(plain(str(text)))


def _print_explanation(told: _Answer) -> None:
    out = wide_console(_WIDTH)
    each = "pod" if told["pods"] == 1 else f"{told['pods']} pods"
    kept = "preemptible" if told["isPreemptible"] else "not preemptible"
    head = (
        f"{told['project']}   {each}, {told['request']} GPU   {told['workKind']}"
        f" ({told['priority']})   {kept}"
    )
    out.print(f"[bold]{_safe(told['workload'])}[/bold]   {_safe(head)}", soft_wrap=True)
    if told.get("others"):
        out.print(f"[dim]the first of {told['others'] + 1} of that name[/dim]", soft_wrap=True)
    out.print()
    since = f" for {format_age(told['waitsSince'])}" if told.get("waitsSince") else ""
    line = f"{_STATES[told['state']]}{since}"
    if told.get("reason"):
        line += f"   {_safe(told['reason'])}"
    if told.get("nodes"):
        line += f"   on {_safe(', '.join(told['nodes'][:8]))}"
    out.print(line, soft_wrap=True)
    if told.get("message"):
        out.print(f"  {_safe(told['message'])}", soft_wrap=True)
    if place := told.get("place"):
        out.print(
            f"  {_nth(place['inProject'])} of {place['ofProject']} in its project,"
            f" {_nth(place['inPool'])} of {place['ofPool']} in its node pool"
        )
    if told.get("forecast"):
        out.print(f"\nFORECAST  {_safe(forecasts.in_full(told['forecast']))}", soft_wrap=True)
    if told.get("queue"):
        out.print()
        _print_shares([told["queue"]])
    _print_list(out, "WAYS TO A PLACE", (_check(each) for each in told.get("checks", ())))
    ways = told.get("waysOut", ())
    _print_list(
        out,
        "STARTS NOW IF   (each was tried on the cluster as it is)",
        ((_safe(way["change"]), _safe(way.get("effect", ""))) for way in ways),
    )
    if told.get("help") and not ways:
        out.print(f"\n{_safe(told['help'])}", soft_wrap=True)
    out.print(f"\n[dim]{_safe(_as_of(told))}[/dim]", soft_wrap=True)


def _check(check: _Answer) -> tuple[str, str]:
    sign = {"yes": "[green]ok[/green]", "no": "[red]no[/red]"}.get(check["outcome"], "-")
    return f"{sign} {_safe(check['name'])}", _safe(check["message"])


def _print_list(out: Console, title: str, rows: Iterable[tuple[str, str]]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(f"  {row[0]}", row[1])
    if table.row_count:
        out.print(f"\n{title}")
        out.print(table)


def _as_of(told: _Answer) -> str:
    as_of = told["asOf"]
    said = f"as of {as_of['time']}, version {as_of['resourceVersion']}"
    if not told.get("published"):
        return said
    agrees = told.get("agrees", True)
    return f"{said}; the controller says {'the same' if agrees else told['published']}"


def _print_queue(told: _Answer) -> None:
    table = _table("POS", "WORKLOAD", "PROJECT", "USER", "GPUS", "PODS", "KIND", "WAITED", "REASON",
                   "FORECAST", "SURE")  # fmt: skip
    for each in told.get("items", ()):
        reason = f"[red]{_safe(each['reason'])}[/red]" if each.get("never") else each["reason"]
        table.add_row(
            str(each["position"] or "-"),
            _safe(each.get("workload", "-")),
            _safe(each["project"]),
            _safe(each.get("user", "") or "-"),
            each["request"],
            str(each["pods"]),
            _safe(each.get("workKind", "-")),
            format_age(each["waitsSince"]) if each.get("waitsSince") else "-",
            reason,
            *_forecast(each),
        )
    if not table.row_count:
        click.echo("Nothing waits.", err=True)
        return
    wide_console(_WIDTH).print(table)


def _forecast(each: _Answer) -> tuple[str, str]:
    forecast = each.get("forecast")
    return (forecasts.when(forecast), forecasts.how_sure(forecast)) if forecast else ("-", "-")


def _print_shares(items: Iterable[_Answer]) -> None:
    table = _table("QUEUE", "POOL", "QUOTA", "LIMIT", "OWED", "HELD", "BORROWED", "WAITING")
    for each in items:
        name = each["queue"].removeprefix("department/")
        indent = "  " if each.get("parent") else ""
        table.add_row(
            f"{indent}{_safe(name)}",
            _safe(each["nodePool"]),
            each["quota"],
            each.get("limit") or "-",
            each["fairShare"],
            each["held"],
            each["borrowed"],
            each["waiting"],
        )
    wide_console(_WIDTH).print(table)


def _print_simulation(told: _Answer) -> None:
    status, out = told["status"], wide_console(_WIDTH)
    table = Table(box=None, pad_edge=False, show_header=False)
    for change in status.get("changes", ()):
        gpus = f"{change['request']} GPU"
        table.add_row(
            f" {_SIGNS.get(change['what'], ' ')}",
            _safe(change["workload"]),
            _safe(change["what"]),
            gpus,
            _safe(change.get("message", "")),
        )
    if table.row_count:
        out.print(table)
    else:
        out.print("The next decision would be the same.")
    out.print(
        f"held {status['heldBefore']} -> {status['heldAfter']} GPUs,"
        f" waiting {status['waitingBefore']} -> {status['waitingAfter']}"
    )
    click.echo("One decision was made on a changed copy; nothing was changed.", err=True)


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def _nth(n: int) -> str:
    ending = "th" if 10 < n % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"
