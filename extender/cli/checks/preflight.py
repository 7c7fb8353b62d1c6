"""`ballast preflight`: checks whether a cluster meets Ballast's requirements."""

import click

from extender.cli.terminal.flags import How, Where, cluster_flags, examples, format_flag


@click.command(
    epilog=examples(
        "kubectl ballast preflight",
        "kubectl ballast preflight -n vision -o json",
    )
)
@click.option(
    "--namespace",
    "-n",
    "namespaces",
    multiple=True,
    help="Also check Jobs and budgets of this namespace; those of GpuProjects are always checked.",
)
@click.option("--no-headers", is_flag=True, help="Omit the headers.")
@format_flag(("table", "json", "yaml"))
@cluster_flags
def preflight(namespaces: tuple[str, ...], no_headers: bool, output: str, where: Where) -> None:
    """Check a cluster before or after Ballast is installed; changes nothing.

    Exit code 1 if any check says FAIL.
    """
    from extender.cli.checks.checked import check

    check(where, namespaces, How(output, no_headers))
