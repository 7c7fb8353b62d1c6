"""`ballast snapshot`: writes the current cluster as a scenario file."""

import click

from extender.cli.terminal.flags import Where, cluster_flags, examples, format_flag


@click.command(
    epilog=examples(
        "kubectl ballast snapshot > now.yaml",
        "kubectl ballast snapshot --anonymous > anonymous.yaml",
    )
)
@click.option("--anonymous", is_flag=True, help="Hash the names of work, users, queues and nodes.")
@format_flag(("yaml", "json"))
@cluster_flags
def snapshot(anonymous: bool, output: str, where: Where) -> None:
    """Print the current cluster as a scenario file.

    `ballast scenario show` makes the next decision on the file, `ballast simulate` runs it for
    days, `ballast whatif --file` changes it. The field `about` lists what a file cannot express.
    With --anonymous equal names have equal hashes in this file, and other hashes in the next.
    """
    from extender.cli.ask import get_view
    from extender.cli.terminal.show import echo_data

    query = {"anonymous": "true"} if anonymous else {}
    answer = get_view(where, "/snapshots/now", query)
    if about := answer["scenario"].get("about"):
        click.echo(about, err=True)
    echo_data(output, answer["scenario"])
