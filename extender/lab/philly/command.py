"""`ballast replay philly`: two busy months of a shared cluster, under one policy or all.

The replay itself is `extender.lab.philly.replay`; here are the options, the tables and the bar.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click
from rich import box
from rich.table import Table

from extender.cli.terminal.flags import format_flag
from extender.cli.terminal.output import bar, data_option, wide_console
from extender.cli.terminal.show import echo_data
from extender.cli.terminal.span import Span
from extender.lab.philly.figures import Figures, TenantFigures, summarise
from extender.lab.philly.reference import BARS, Reference, reference_for
from extender.lab.philly.replay import Replay, ReplayOutcome
from extender.lab.philly.report import COLUMNS, as_json, misses_bar, shown, shown_reference
from extender.lab.philly.rules import RULES, ReplayPace, ReplayRule, rule_named
from extender.lab.philly.trace import WINDOW_DAYS, PhillyTrace, TraceError, load_trace, shaken

_NAMES: Final = [rule.name for rule in RULES]
_PRIVATE: Final = "private"
_MOST_NODES: Final = 2000
_MOST_SEEDS: Final = 100
#: Width of the widest table in characters if the output is no terminal.
_WIDE: Final = 170


@click.command()
@data_option
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Choice([*_NAMES, "all"], case_sensitive=False),
    default=["ballast"],
    show_default=True,
    help="May be given several times; ballast is what users get.",
)
@click.option(
    "--nodes",
    type=click.IntRange(1, _MOST_NODES),
    default=64,
    show_default=True,
    help="Nodes of 8 GPUs; the jobs request 103 % of 64.",
)
@click.option(
    "--days",
    type=Span("days", 1, WINDOW_DAYS, WINDOW_DAYS),
    default=f"1-{WINDOW_DAYS}",
    show_default=True,
    help="Jobs submitted on these days; 1 is 2017-10-01.",
)
@click.option(
    "--cycle",
    "cycle_s",
    type=click.IntRange(0, 3600),
    default=1,
    show_default=True,
    help="Seconds of trace time between two cycles, at least; the controller's are a second apart.",
)
@click.option(
    "--min-runtime",
    "min_runtime_s",
    type=click.IntRange(0, 86_400),
    default=0,
    show_default=True,
    help="Seconds for which a job that was started is not stopped.",
)
@click.option(
    "--preemption-delay",
    "preemption_delay_s",
    type=click.IntRange(0, 86_400),
    default=0,
    show_default=True,
    help="Seconds that a job waits before others are stopped or moved for it.",
)
@click.option(
    "--reclaim-band",
    "reclaim_band_percent",
    type=click.IntRange(0, 100),
    help="The node pool's reclaimBandPercent.  [default: as installed for `ballast`, 0 for others]",
)
@click.option(
    "--checkpoint",
    "checkpoint_s",
    type=click.IntRange(0, 86_400),
    help="The node pool's checkpointSeconds; jobs save their work every 30 minutes."
    "  [default: as installed for `ballast`, 0 for others]",
)
@click.option(
    "--seeds",
    type=Span("seeds", 0, 1_000_000, _MOST_SEEDS),
    default="0",
    show_default=True,
    help="0 is the trace as it is; others submit each job up to a minute later.",
)
@click.option("--tenants", "has_tenants", is_flag=True, help="Show every tenant too.")
@format_flag(("table", "json", "yaml"))
def philly(  # noqa: PLR0913 - one for each option but those of the pace
    *,
    folder: Path,
    policies: tuple[str, ...],
    nodes: int,
    days: range,
    seeds: range,
    has_tenants: bool,
    output: str,
    **pace_options: Any,
) -> None:
    """Measure waits, fairness and idle GPUs of a shared cluster (Microsoft's Philly, 2017).

    Eleven tenants submit 68,496 jobs in two months. The policy `ballast` decides as the
    controller does; private partitions, with which fairness is compared, always run too.
    """
    names = _NAMES if "all" in policies else list(dict.fromkeys(policies))
    try:
        trace = load_trace(folder, nodes, (days[0], days[-1]))
    except TraceError as error:
        raise click.ClickException(str(error)) from None
    pace = ReplayPace(**pace_options)
    figures = _replay(trace, [rule_named(name) for name in names], pace, seeds)
    if not echo_data(output, as_json(trace, pace, figures)):
        _show(trace, figures, has_tenants)


def _replay(
    trace: PhillyTrace, rules: Sequence[ReplayRule], pace: ReplayPace, seeds: range
) -> dict[str, list[Figures]]:
    """The figures of every rule, a run for each seed."""
    figures: dict[str, list[Figures]] = {rule.name: [] for rule in rules}
    for seed in seeds:
        jobs = shaken(trace, seed)
        private = _run(jobs, rule_named(_PRIVATE), pace)
        for rule in rules:
            outcome = private if rule.name == _PRIVATE else _run(jobs, rule, pace)
            figures[rule.name].append(summarise(outcome, private))
    return figures


def _run(trace: PhillyTrace, rule: ReplayRule, pace: ReplayPace) -> ReplayOutcome:
    """One replay, with a bar."""
    with bar() as progress:
        task = progress.add_task(rule.name, total=len(trace.jobs))
        return Replay(trace, rule, pace).run(lambda n_done: progress.advance(task, n_done))


def _show(trace: PhillyTrace, figures: dict[str, list[Figures]], has_tenants: bool) -> None:
    console = wide_console(_WIDE)
    console.print(_heading(trace))
    if len(figures) == 1:
        console.print(_one_rule(trace, *figures.items()))
    else:
        console.print(_many_rules(trace, figures))
    if has_tenants:
        for name, runs in figures.items():
            console.print(_of_tenants(rule_named(name), runs[-1].tenants))


def _heading(trace: PhillyTrace) -> str:
    quota = " ".join(str(nodes) for nodes in trace.quota_nodes.values())
    return (
        f"Philly, {trace.nodes} nodes x 8 GPUs, {len(trace.jobs):,} jobs of days"
        f" {trace.days[0]}-{trace.days[1]} ({trace.n_dropped} larger than their tenant's quota"
        f" left out); quotas in nodes: {quota}"
    )


def _one_rule(trace: PhillyTrace, entry: tuple[str, list[Figures]]) -> Table:
    name, runs = entry
    table = Table(title=rule_named(name).title, box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("figure")
    for heading in ("here", "note", "bar", "goal"):
        table.add_column(heading, justify="right", no_wrap=True)
    reference = _reference(trace, name)
    for column in COLUMNS:
        bar, goal = BARS.get(column.name, (None, None))
        is_missed = misses_bar(column, runs)
        style = {None: "", True: "red", False: "green"}[is_missed]
        table.add_row(
            column.heading,
            f"[{style}]{shown(column, runs)}[/]" if style else shown(column, runs),
            shown_reference(column, reference),
            "" if bar is None else f"{bar:,g}",
            "" if goal is None else f"{goal:,g}",
        )
    last = runs[-1]
    table.caption = (
        f"{last.cycles:,} cycles in {last.decide_s:.0f} s; longest wait {last.max_wait_h:,.0f} h;"
        f" victims: {last.young_victims:,} young, {last.repeat_victims:,} repeated,"
        f" {last.ping_pongs:,} ping-pong"
    )
    return table


def _many_rules(trace: PhillyTrace, figures: dict[str, list[Figures]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, caption="second lines: the note's figures")
    table.add_column("policy", no_wrap=True)
    for column in COLUMNS:
        table.add_column(column.heading, justify="right")
    for name, runs in figures.items():
        reference = _reference(trace, name)
        table.add_row(rule_named(name).title, *_cells(runs))
        if reference is not None:
            noted = [shown_reference(column, reference) for column in COLUMNS]
            table.add_row("", *noted, style="dim", end_section=True)
    return table


def _cells(runs: Sequence[Figures]) -> Iterator[str]:
    for column in COLUMNS:
        yield shown(column, runs)


def _reference(trace: PhillyTrace, name: str) -> Reference | None:
    """The reference result of this rule; None unless the whole window is replayed."""
    is_whole = trace.days == (1, WINDOW_DAYS)
    return reference_for(name, trace.nodes) if is_whole else None


def _of_tenants(rule: ReplayRule, tenants: Sequence[TenantFigures]) -> Table:
    table = Table(title=rule.title, box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("tenant", no_wrap=True)
    for heading in ("quota GPUs", "jobs", "wait h", "alone h", "deprived GPU-h"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in tenants:
        table.add_row(
            each.tenant,
            str(each.quota_gpus),
            f"{each.jobs:,}",
            f"{each.mean_wait_h:.2f}",
            f"{each.private_mean_wait_h:.2f}",
            f"{each.deprived_gpu_h:,.0f}",
            style="red" if each.is_worse else "",
        )
    return table
