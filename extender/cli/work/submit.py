"""`ballast run`: creates a Job with GPUs, a gang if it has several pods."""

from typing import Final

import click

from extender.api import names
from extender.cli.completion.names import complete_project
from extender.cli.terminal.flags import (
    Scope,
    Where,
    cluster_flags,
    examples,
    format_flag,
    namespace_flag,
)

#: A shorter time was probably meant in hours or minutes.
_SHORT_S: Final = 60
_DRY_RUN: Final = ("none", "client", "server")


@click.command(
    context_settings={"ignore_unknown_options": False},
    epilog=examples(
        "kubectl ballast run train --image team/train:3 --gpus 8 --pods 4 -- torchrun train.py",
        "kubectl ballast run try --image team/train:3 --gpus 0.5 --dry-run=client -- bash",
    ),
)
@click.argument("name")
@click.argument("command", nargs=-1, metavar="[-- COMMAND [ARGS]...]")
@click.option("--image", required=True, help="Image of the container.")
@click.option("--gpus", default="1", show_default=True, help="GPUs of each pod: 0.5, 1, 8.")
@click.option("--gpu-memory", default="", metavar="MIB", help="MiB of one GPU instead of --gpus.")
@click.option("--pods", default=1, show_default=True, help="Pods that run at once, all or none.")
@click.option(
    "--min-pods", default=0, help="Start as soon as this many fit, and add the others later."
)
@click.option("--kind", type=click.Choice(names.KINDS), default="training", show_default=True)
@click.option("--priority-class", default="", help="Default: the class of the kind.")
@click.option(
    "--checkpoint", default="", metavar="TIME", help="Time between checkpoints: 1800, 30m, 2h."
)
@click.option("--run-time", default="", metavar="TIME", help="Run time, for backfill: 4h.")
@click.option(
    "--project", default="", help="Use the project's only namespace.",
    shell_complete=complete_project,
)  # fmt: skip
@click.option("--node-pools", default="", metavar="A,B", help="Node pools, the first preferred.")
@click.option("--user", default="", help="User whose share the work counts against.")
@click.option("--cpu", default="", help="CPU of each pod: 8, 500m.")
@click.option("--memory", default="", help="Memory of each pod: 32Gi.")
@click.option("--env", "envs", multiple=True, metavar="NAME=VALUE", help="Environment variable.")
@click.option("--dry-run", type=click.Choice(_DRY_RUN), default="none", show_default=True)
@format_flag(("text", "yaml", "json", "name"))
@namespace_flag
@cluster_flags
def run(
    namespace: str, project: str, dry_run: str, output: str, where: Where, **given: object
) -> None:
    """Create a Job NAME that runs COMMAND on GPUs.

    The Job is the one that `kubectl create job` creates, with GPUs in its template, pods that start
    all or none (--pods), and a podFailurePolicy that does not count evictions as failures. With
    --run-time, a GpuPodGroup of the same name states the run time. --dry-run=client prints the
    objects and changes nothing, --dry-run=server validates them at the API server.
    """
    from extender.cli.ask import ask, space_of
    from extender.cli.terminal.show import as_yaml, echo_data
    from extender.cli.work.jobs import Ask, BadAskError, documents, home_of, submit

    try:
        asked = Ask.of(**given)  # type: ignore[arg-type]
    except BadAskError as error:
        raise click.UsageError(str(error)) from None
    for option, seconds in (("--run-time", asked.run_time), ("--checkpoint", asked.checkpoint)):
        if 0 < seconds < _SHORT_S:
            text = f"{option} {seconds} means {seconds} s: for hours write {seconds}h"
            click.echo(f"Warning: {text}", err=True)
    space = namespace
    if project and not namespace:
        space = ask(where, lambda client: home_of(client, project))
    objects = documents(asked, space or space_of(Scope(), where))
    if dry_run == "client":
        if output in ("text", "yaml"):
            click.echo("---\n".join(map(as_yaml, objects)), nl=False)
        elif output == "name":
            click.echo(f"job.batch/{asked.name}")
        else:
            echo_data("json", {"apiVersion": "v1", "kind": "List", "items": objects})
        return
    made = ask(where, lambda client: submit(client, objects, is_dry=dry_run == "server"))
    suffix = " (server dry run)" if dry_run == "server" else ""
    if output == "name":
        click.echo(f"job.batch/{asked.name}")
    elif not echo_data(output, made):
        click.echo(f"job.batch/{asked.name} created{suffix}")
