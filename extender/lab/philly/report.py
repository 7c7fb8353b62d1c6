"""The figures of replays as table rows, with the note's beside them, and as one JSON document."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, Final

import msgspec

from extender.lab.philly.figures import Figures
from extender.lab.philly.reference import BARS, Reference, reference_for
from extender.lab.philly.rules import CHECKPOINT_S, RESTART_S, ReplayPace, rule_named
from extender.lab.philly.trace import STEADY_DAYS, PhillyTrace


@dataclass(slots=True, frozen=True)
class Column:
    """One figure: its name in `Figures`, its heading, and its decimals."""

    name: str
    heading: str
    decimals: int

    def show(self, values: Sequence[float]) -> str:
        """The mean, with its standard deviation if there are several values."""
        text = f"{fmean(values):,.{self.decimals}f}"
        return f"{text} ±{stdev(values):,.{self.decimals}f}" if len(values) > 1 else text


COLUMNS: Final = (
    Column("alloc_pct", "alloc %", 2),
    Column("useful_pct", "useful %", 2),
    Column("mean_wait_h", "wait h", 2),
    Column("p99_wait_h", "p99 h", 1),
    Column("wait_8_h", "8-GPU h", 1),
    Column("wait_over_8_h", ">8 h", 1),
    Column("idle_pending_pct", "idle pend. %", 2),
    Column("deprived_gpu_h", "deprived GPU-h", 0),
    Column("unfair_pct", "unfair %", 1),
    Column("worse_tenants", "VCs <", 0),
    Column("evictions", "evict", 0),
    Column("moves", "move", 0),
    Column("lost_gpu_h", "lost GPU-h", 0),
)


def shown(column: Column, runs: Sequence[Figures]) -> str:
    """The figure of one rule, over its seeds."""
    return column.show([getattr(figures, column.name) for figures in runs])


def shown_reference(column: Column, reference: Reference | None) -> str:
    """The note's figure in its own notation, empty if it has none."""
    value = getattr(reference, column.name, None)
    return "" if value is None else f"{value:,}"


def misses_bar(column: Column, runs: Sequence[Figures]) -> bool | None:
    """Whether the mean exceeds the bar; None if the figure has no bar."""
    bar = BARS.get(column.name)
    return None if bar is None else fmean(getattr(each, column.name) for each in runs) > bar[0]


def as_json(trace: PhillyTrace, pace: ReplayPace, runs: dict[str, list[Figures]]) -> dict[str, Any]:
    """The document: the protocol, and for each rule its runs with the reference."""
    return {
        "protocol": {
            "nodes": trace.nodes,
            "gpus": trace.gpus,
            "days": list(trace.days),
            "steady_days": list(STEADY_DAYS),
            "jobs": len(trace.jobs),
            "dropped": trace.n_dropped,
            "quota_nodes": dict(trace.quota_nodes),
            "cycle_s": pace.cycle_s,
            "min_runtime_s": pace.min_runtime_s,
            "preemption_delay_s": pace.preemption_delay_s,
            "reclaim_band_percent": pace.reclaim_band_percent,
            "assumed_checkpoint_s": pace.checkpoint_s,
            "checkpoint_s": CHECKPOINT_S,
            "restart_s": RESTART_S,
        },
        "bars": {name: {"bar": bar, "goal": goal} for name, (bar, goal) in BARS.items()},
        "rules": [
            {
                "rule": name,
                "title": rule_named(name).title,
                "reference": msgspec.to_builtins(reference_for(name, trace.nodes)),
                "runs": msgspec.to_builtins(figures),
            }
            for name, figures in runs.items()
        ],
    }
