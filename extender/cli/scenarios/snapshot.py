"""`ballast snapshot`: the cluster of now as a scenario file."""

import click

from extender.cli.terminal.flags import Where, cluster_flags, format_flag


@click.command()
@click.option("--anonymous", is_flag=True, help="Hash the names of work, users, queues and nodes.")
@format_flag(("yaml", "json"))
@cluster_flags
def snapshot(anonymous: bool, output: str, where: Where) -> None:
    """Print the cluster as it is now as a scenario file.

    `ballast scenario show` decides on the file as the cluster does now, `ballast simulate` runs it
    for days, `ballast whatif --file` changes it. What a file cannot say stands in its field
    `about`. With --anonymous equal names have equal hashes in this file, and others in the next.
    """
    from extender.cli.ask import get_view
    from extender.cli.terminal.show import echo_data

    query = {"anonymous": "true"} if anonymous else {}
    told = get_view(where, "/snapshots/now", query)
    if about := told["scenario"].get("about"):
        click.echo(about, err=True)
    echo_data(output, told["scenario"])
