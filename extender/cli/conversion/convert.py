"""`ballast convert`: converts objects of other schedulers to Ballast's."""

from pathlib import Path
from typing import Final

import click

from extender.cli.terminal.flags import Where, cluster_flags, examples, format_flag

PEERS: Final = ("kai", "runai", "kueue", "hami", "volcano", "slurm")


@click.command(
    epilog=examples(
        "ballast convert --from kueue > ours.yaml",
        "ballast convert --from slurm -f accounts.txt -f train.sh",
    )
)
@click.option(
    "--from", "peer", required=True, type=click.Choice(PEERS), help="The other scheduler."
)
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    type=click.Path(exists=True, allow_dash=True, path_type=Path),
    help="File or folder of YAML or JSON, or what Slurm wrote; - is standard input.",
)
@format_flag(("yaml", "json"))
@cluster_flags
def convert(peer: str, files: tuple[Path, ...], output: str, where: Where) -> None:
    """Convert the objects of another scheduler to Ballast's.

    Without -f the objects are read from the cluster (kai, kueue, volcano). Nothing is changed.
    Fields without a counterpart are listed on standard error, each with the reason; then the exit
    code is 1.
    """
    from extender.cli.conversion.converted import read_and_convert
    from extender.cli.terminal.exits import BAD
    from extender.cli.terminal.output import plain
    from extender.cli.terminal.show import as_yaml, echo_data

    done = read_and_convert(peer, files, where)
    if output == "json":
        echo_data(output, {"apiVersion": "v1", "kind": "List", "items": done.objects})
    else:
        click.echo("---\n".join(map(as_yaml, done.objects)), nl=False)
    for note in done.notes:
        click.echo(f"Note: {plain(note)}", err=True)
    if done.lost:
        click.echo(f"{len(done.lost)} without a counterpart:", err=True)
        for each in done.lost:
            click.echo(f"- {plain(str(each))}", err=True)
        raise SystemExit(BAD)
