"""`ballast simulate`: runs the cluster of a scenario file for days and reports on its queues."""

from pathlib import Path
from typing import Final

import click

from extender.cli.terminal.flags import Number, format_flag

_HELP: Final = """\
The file is a scenario with a section `simulate`:

\b
simulate:
  days: 7                  # default 1; --days overrides it
  seed: 1                  # of everything random
  restart: 60              # seconds that the restart of an evicted task takes
  lookEvery: 60            # longest time between cycles while pods wait, in seconds
  runs: {train: 7200}      # seconds of work of jobs in `jobs`; others never end
  arrivals:                # jobs that arrive, each as in `job`
  - {at: 600, every: 3600, count: 24, run: 1800,
     job: {name: eval, queue: b, tasks: [{name: t, gpu: 1}]}}
  - {perDay: 40, from: 0, until: 86400, run: [600, 7200],
     gpu: [1, 1, 2], priority: [50, 75], user: [ann, ben],
     job: {name: small, queue: a, checkpoint: 1800, tasks: [{name: t}]}}
  - {keep: 3, run: [7200, 14400],   # always three of them
     job: {name: train, queue: c, tasks: [{name: t, n: 4, gpu: 1}]}}
  events:                  # as in `steps`
  - {at: 3600, finish: [x], set: {y: {priority: 75}}}
  atMost: {total.lostPercent: 2, queues.*.longestWithoutHours: 1}
  atLeast: {queues.a.heldPercentOfOwed: 95}

See docs/simulate.md for what the figures mean.
"""


@click.command("simulate", epilog=_HELP)
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--case", "id_", default="", help="Only the case with this id.")
@click.option("--days", type=Number(0, 3660, min_open=True), help="Days to run.")
@click.option("--seed", type=int, help="Seed of random arrivals.")
@click.option("--events", "has_events", is_flag=True, help="Print every decision, too.")
@format_flag(("table", "json", "yaml"))
def simulate_command(
    path: Path, id_: str, days: float | None, seed: int | None, *, has_events: bool, output: str
) -> None:
    """Run the cluster of a scenario file for days, and report what happened to its work.

    Exit code 1 if the file's `atMost` or `atLeast` is missed or an invariant is broken.
    """
    from extender.cli.scenarios.days import run_days

    run_days(path, id_, days, seed, has_events=has_events, output=output)
