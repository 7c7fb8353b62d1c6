"""The command `ballast time-slicing`: cases of time on one card, run and compared."""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from gpu_shim.cases import virtual
from gpu_shim.cases.load import load
from gpu_shim.cases.model import CardCase
from gpu_shim.cases.outcome import CaseOutcome, differences
from gpu_shim.top import TopError, Watcher, text

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


class CaseVerdict(msgspec.Struct):
    """The result of one case."""

    id: str
    verdict: str
    differences: list[str]
    seconds: str = ""
    held: dict[str, str] = {}
    due: dict[str, str] = {}
    refused: dict[str, str] = {}


def _format_flag(help_: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """`-o`, as the other commands have it."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(("table", "json")),
        default="table",
        show_default=True,
        help=help_,
    )


@click.group("time-slicing")
def time_slicing() -> None:
    """Run cases of time-slicing on one card."""


@time_slicing.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--mode", type=click.Choice(["virtual", "real"]), default="virtual")
@_format_flag("json: one object a line for each case.")
@click.option("--driver", type=_FOLDER, help="Real: folder of the libcuda.so.1 to run on.")
@click.option("--libraries", type=_FOLDER, help="Real: our built libraries; default: built anew.")
@click.option("--plans", default=12, show_default=True, help="Real: plans to measure.")
@click.option("--only", default="", help="Only cases with this text in their id.")
def run(paths: tuple[Path, ...], mode: str, output: str, only: str, **real: Any) -> None:
    """Run the cases of files and folders; the last line counts them.

    Virtual runs the policy alone and is exact. Real runs the arbiter and a process for each
    workload on a driver whose kernels are named by their time (spin_1000), with all times a tenth.
    """
    runner = _runner(mode, **real)
    loaded = load(paths)
    verdicts = [CaseVerdict(broken.id, "failed", [broken.why]) for broken in loaded.broken]
    for verdict in verdicts:
        _tell(verdict, output)
    for case in (case for case in loaded.cases if only in case.id):
        verdicts.append(_judge(case, runner(case)))
        _tell(verdicts[-1], output)
    sys.exit(_summary(verdicts))


def _runner(
    mode: str, driver: Path | None, libraries: Path | None, plans: int
) -> Callable[[CardCase], CaseOutcome]:
    """The function that runs a case; raises UsageError if the options do not go together."""
    if mode == "virtual":
        return virtual.run
    if driver is None:
        raise click.UsageError("--mode real needs --driver")
    from gpu_shim.cases import real  # noqa: PLC0415
    from gpu_shim.cases.containers import NoGpuError  # noqa: PLC0415

    stage = real.Stage(driver, libraries, plans)

    def play(case: CardCase) -> CaseOutcome:
        try:
            return stage.run(case)
        except NoGpuError as error:
            raise click.ClickException(str(error)) from None

    return play


def _judge(case: CardCase, outcome: CaseOutcome) -> CaseVerdict:
    found = differences(case, outcome)
    return CaseVerdict(
        case.id,
        "failed" if found else "passed",
        found,
        str(outcome.seconds),
        {name: str(held.held_s) for name, held in outcome.held.items()},
        {name: str(held.due_s) for name, held in outcome.held.items()},
        outcome.refused,
    )


def _tell(verdict: CaseVerdict, output: str) -> None:
    if output == "json":
        click.echo(msgspec.json.encode(verdict).decode())
        return
    click.echo(f"{verdict.verdict}  {verdict.id}")
    for each in verdict.differences:
        click.echo(f"        {each}")


def _summary(verdicts: Sequence[CaseVerdict]) -> int:
    """Print the counts; 1 if a case failed, or if there was none."""
    n_failed = sum(each.verdict == "failed" for each in verdicts)
    click.echo(f"{len(verdicts) - n_failed} passed, {n_failed} failed, 0 skipped")
    return int(n_failed > 0 or not verdicts)


@click.group()
def gpu() -> None:
    """Show the GPUs of one node."""


@gpu.command()
@click.option(
    "--url", default="http://127.0.0.1:8890/metrics", show_default=True, help="The node's agent."
)
@click.option(
    "--every", default=2.0, type=click.FloatRange(0.1), show_default=True, help="Seconds per view."
)
@click.option("--once", is_flag=True, help="One view, then end.")
@_format_flag("json: one object a line for each view.")
def top(url: str, every: float, once: bool, output: str) -> None:
    """Show cards and pods, with memory and time used against entitled, until stopped.

    On a cluster, first: kubectl -n ballast-node port-forward POD 8890, with the agent of the node.
    """
    watcher = Watcher(url)
    said = ""
    while True:
        try:
            found = watcher.look(every)
            said = msgspec.json.encode(found).decode() if output == "json" else text(found)
        except TopError as error:
            # A replaced agent is back soon; one that never answered is an error.
            if once or not said:
                raise click.ClickException(str(error)) from None
            click.echo(str(error), err=True)
            time.sleep(every)
            continue
        if output == "table":
            click.clear()
        click.echo(said)
        if once:
            return
