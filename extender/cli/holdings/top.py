"""`ballast top`: which projects, nodes, GPUs and pods hold GPU capacity now."""

from typing import Any, Final

import click

from extender.cli.terminal.flags import (
    How,
    Scope,
    Where,
    cluster_flags,
    examples,
    output_flags,
    scope_flags,
)

WHAT: Final = ("projects", "nodes", "gpus", "pods")


class _What(click.Choice[str]):
    """One of `WHAT`, also in the singular, as in `kubectl top node`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        plural = f"{value}s"
        return super().convert(plural if plural in WHAT else value, param, ctx)


@click.command(
    epilog=examples(
        "kubectl ballast top",
        "kubectl ballast top pods -A",
        "kubectl ballast top nodes -l nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB",
    )
)
@click.argument("what", type=_What(WHAT), default="projects")
@click.option(
    "-l", "--selector", default="", metavar="SELECTOR", help="Labels of the nodes, or of the pods."
)
@scope_flags
@output_flags()
@cluster_flags
def top(what: str, selector: str, scope: Scope, how: How, where: Where) -> None:
    """Show what holds GPUs now, by projects (default), nodes, gpus or pods.

    `projects` reads the status of GpuProjects, and `pods` the pods of the namespace: a login and
    the role `view` are enough. `nodes` and `gpus` read GpuNodes, which name every pod that holds a
    card. Measured use (USED, BUSY) comes from the node agents, through the API server; if an agent
    cannot be reached, these columns show a dash.
    """
    from extender.cli.ask import Answer, ask, space_of
    from extender.cli.holdings.held import LISTINGS, read
    from extender.cli.terminal.show import show_list

    if what != "pods" and (scope.namespace or scope.is_all):
        raise click.UsageError("-n and -A choose among pods: ballast top pods")
    if what == "projects" and selector:
        raise click.UsageError("-l chooses among nodes or pods, not projects")
    space = space_of(scope, where) if what == "pods" else ""

    def fetch() -> Answer:
        return ask(where, lambda client: read(client, what, space, selector))

    show_list(how, LISTINGS[what], fetch)
