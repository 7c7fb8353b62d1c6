"""Draws the figures: as a live table in a terminal, else as a table every few seconds."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tests.demo.board import Figures, QueueFigures

REFRESH_S: Final = 0.5
SNAPSHOT_S: Final = 5.0
BAR: Final = 21


class Screen:
    """Shows `figures()` while `run` runs; `say` prints a permanent line."""

    def __init__(self, figures: Callable[[], Figures], console: Console, started_s: float) -> None:
        self._figures = figures
        self._console = console
        self._started_s = started_s
        self.title = ""

    def say(self, line: str) -> None:
        """Print a line above the table, with the time since the start."""
        self._console.print(f"[dim]{self._elapsed_s():5.1f} s[/dim]  {line}")

    def show(self) -> None:
        """Print the table as it is now."""
        self._console.print(draw(self.title, self._figures()))

    async def run(self) -> None:
        """Draw until cancelled."""
        if not self._console.is_terminal:
            while True:
                await asyncio.sleep(SNAPSHOT_S)
                self.show()
        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            while True:
                live.update(draw(self.title, self._figures()), refresh=True)
                await asyncio.sleep(REFRESH_S)

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._started_s


def draw(title: str, figures: Figures) -> Group:
    """The table, and two lines about nodes, cards and events; 80 columns wide."""
    table = Table(
        title=title, title_justify="left", box=None, pad_edge=False, collapse_padding=True
    )
    table.add_column("queue", min_width=12)
    for name in ("quota", "fair\nshare", "held"):
        table.add_column(name, justify="right")
    table.add_column("# held | quota + over", min_width=BAR)
    for name in ("pending\nGPUs", "pending\npods", "evicted"):
        table.add_column(name, justify="right")
    most = max([figures.cards * 1000, *(each.quota for each in figures.queues)])
    for queue in figures.queues:
        is_project = bool(queue.parent)
        table.add_row(
            f"  {queue.name}" if is_project else queue.name,
            gpus(queue.quota),
            gpus(queue.fair_share),
            gpus(queue.allocated),
            bar(queue, most) if is_project else "",
            gpus(queue.pending_milli),
            str(queue.pending_pods),
            str(queue.evicted),
            style="" if is_project else "bold",
        )
    share = 100 * figures.allocated / (figures.cards * 1000) if figures.cards else 0
    return Group(
        table,
        Text(
            f"nodes {figures.nodes_used}/{figures.nodes} used, cards {figures.cards_used}/"
            f"{figures.cards} used ({figures.cards_shared} shared), {share:.1f} % allocated\n"
            f"{figures.bound} binds, {figures.evicted} evictions, {figures.violations} violations"
        ),
    )


def bar(queue: QueueFigures, most: int) -> Text:
    """Allocated GPUs as a bar: solid within quota, lighter above it; `|` marks the quota."""
    scale = BAR * 2 / most if most else 0
    n_held, quota_at = round(queue.allocated * scale), min(round(queue.quota * scale), BAR - 1)
    cells = Text()
    for ix in range(BAR):
        if ix == quota_at:
            cells.append("|", style="bold")
        elif ix < n_held:
            cells.append(
                "#" if ix < quota_at else "+", style="green" if ix < quota_at else "yellow"
            )
        else:
            cells.append(" ")
    return cells


def gpus(milli: int) -> str:
    """Milli-GPU as GPUs with one decimal."""
    return f"{milli / 1000:.1f}"
