"""`ballast preflight`: a table of what a cluster has and lacks for Ballast."""

import asyncio
from typing import Final, Literal

import click
import msgspec
from rich.table import Table

from extender.cli.output import plain, wide_console
from extender.kube.client import Client
from extender.kube.errors import KubeError
from extender.preflight.cluster import check_cluster
from extender.preflight.facts import Facts, FactsReader
from extender.preflight.findings import PreflightFinding, State
from extender.preflight.nodes import check_nodes
from extender.preflight.workloads import check_workloads

_COLOURS: Final = {State.OK: "green", State.WARN: "yellow", State.FAIL: "red"}
_WIDTH: Final = 200


@click.command()
@click.option("--kubeconfig", default="", help="Default: $KUBECONFIG, else the service account.")
@click.option(
    "--namespace",
    "-n",
    "namespaces",
    multiple=True,
    help="Look at Jobs and budgets of this namespace too; those of GpuProjects always are.",
)
@click.option(
    "--output", "-o", type=click.Choice(["table", "json"]), default="table", show_default=True
)
def preflight(
    kubeconfig: str, namespaces: tuple[str, ...], output: Literal["table", "json"]
) -> None:
    """Check a cluster before or after Ballast is installed; changes nothing.

    Exit code 1 if any check says FAIL.
    """
    try:
        facts = asyncio.run(_read(kubeconfig, namespaces))
    except KubeError as error:
        raise click.ClickException(str(error)) from None
    findings = judge(facts)
    if output == "json":
        listed = {"checks": findings}
        click.echo(msgspec.json.format(msgspec.json.encode(listed), indent=1).decode())
    else:
        wide_console(_WIDTH).print(_table(findings))
    if any(each.state is State.FAIL for each in findings):
        raise SystemExit(1)


def judge(facts: Facts) -> list[PreflightFinding]:
    """Every finding, the worst first."""
    order = list(reversed(State))
    found = [*check_cluster(facts), *check_nodes(facts), *check_workloads(facts)]
    return sorted(found, key=lambda each: order.index(each.state))


async def _read(kubeconfig: str, namespaces: tuple[str, ...]) -> Facts:
    async with await Client.connect(kubeconfig or None, user_agent="kubectl-ballast") as client:
        return await FactsReader(client).read(namespaces)


def _table(findings: list[PreflightFinding]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("", "CHECK", "FOUND", "WHAT TO DO"):
        table.add_column(name, overflow="fold")
    for each in findings:
        colour = _COLOURS[each.state]
        state = f"[{colour}]{each.state.value}[/{colour}]"
        cells = (plain(text).replace("[", r"\[") for text in (each.check, each.found, each.advice))
        table.add_row(state, *cells)
    return table
