"""`ballast bench`: times scheduling cycles on the cluster of a scenario file."""

from dataclasses import asdict
from pathlib import Path

import click

from extender.cli.terminal.commands import Commands
from extender.cli.terminal.flags import format_flag


@click.group(cls=Commands)
def bench() -> None:
    """Benchmark decisions."""


_TITLES = ("case", "nodes", "pods", "best ms", "median ms", "bound", "evicted", "nominated", "MiB")


@bench.command()
@click.option(
    "--shape",
    required=True,
    type=click.Path(exists=True, path_type=Path),
    help="Scenario file with one case.",
)
@click.option(
    "--repeat", default=3, show_default=True, type=click.IntRange(1, 1000), help="Number of runs."
)
@click.option("--stages", "by_stage", is_flag=True, help="Also time each stage, with more runs.")
@format_flag(("table", "json", "yaml"))
def cycle(shape: Path, repeat: int, by_stage: bool, output: str) -> None:
    """Time one cycle: all stages, with the model in memory, each run on a new snapshot."""
    from extender.cli.scenarios.cycle_timing import time_case
    from extender.cli.terminal.show import echo_data, print_table, safe, table_of
    from extender.scenario.errors import ScenarioError
    from extender.scenario.load import load

    loaded = load([shape])
    if loaded.broken:
        raise click.ClickException(loaded.broken[0].why)
    try:
        found = [time_case(case, repeat, by_stage=by_stage) for case in loaded.cases]
    except ScenarioError as error:
        raise click.ClickException(str(error)) from error
    if echo_data(output, [asdict(each) for each in found]):
        return
    table = table_of(_TITLES, folds=False)
    for each in found:
        figures = (each.n_nodes, each.n_pods, f"{each.best_ms:.2f}", f"{each.median_ms:.2f}")
        decided = (each.n_bound, each.n_evicted, each.n_nominated, f"{each.peak_rss_mib:.0f}")
        table.add_row(safe(each.id), *map(str, (*figures, *decided)))
    print_table(table)
    for each in found:
        for stage, took_ms in each.stages_ms.items():
            click.echo(f"{each.id}: {stage} {took_ms:.2f} ms")
