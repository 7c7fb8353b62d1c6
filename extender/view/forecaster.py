"""Looks ahead periodically, beside the answers, and counts how often forecasts held.

A look ahead is a series of decisions in a thread that rests as long as it works, so it uses at most
half a core. Its results, and the counts, are lost when the program ends.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

import structlog
from prometheus_client import Counter, Histogram

from extender.state.model import WorkloadView
from extender.view.ahead import Ahead
from extender.view.answers import Forecast
from extender.view.forecast import MOST_WORKLOADS, Foresight, HitRate, Outlook
from extender.view.picture import Picture

#: Pause between two looks ahead: forecasts are of hours.
EVERY_S: Final = 60.0

_CAME_DUE = Counter(
    "ballast_view_forecasts_total",
    "Answers that came due, by their word, and whether the workload started when they said.",
    ["word", "outcome"],
)
_LOOK_SECONDS = Histogram(
    "ballast_view_look_ahead_seconds",
    "Time of one look ahead, including its pauses.",
    buckets=(0.1, 1, 3, 10, 30, 100, 300),
)

_log = structlog.get_logger(__name__)


class Forecaster:
    """Forecasts the start of workloads. `take` returns the current cluster."""

    def __init__(self, take: Callable[[], Picture]) -> None:
        self._take = take
        self._outlook: Outlook | None = None
        self._hits = HitRate()
        self._last: Foresight | None = None

    def tell(self, picture: Picture, workload: WorkloadView) -> Forecast:
        """The workload's forecast, with how often such forecasts held in its project."""
        if self._last is None or self._last.picture is not picture:
            self._last = Foresight(picture, self._outlook)
        return self._hits.tell(self._last.of(workload), workload.project)

    async def run(self) -> None:
        """Look ahead until cancelled."""
        while True:
            picture = self._take()
            try:
                with _LOOK_SECONDS.time():
                    await asyncio.to_thread(self._look, picture)
            except Exception:
                # Answers continue without it.
                self._outlook = None
                _log.exception("a look ahead could not be made")
            await asyncio.sleep(EVERY_S)

    def _look(self, picture: Picture) -> None:
        """Look ahead, check the forecasts that came due, and record the new ones."""
        foresight = look_ahead(picture)
        self._outlook = foresight.outlook
        for word, has_held in self._hits.review(picture):
            _CAME_DUE.labels(word, "held" if has_held else "missed").inc()
        for key in picture.plan.waits:
            workload = picture.snapshot.workloads.get(key)
            if workload is not None:
                self._hits.give(workload, foresight.of(workload))


def look_ahead(picture: Picture) -> Foresight:
    """The forecasts from a run ahead of the picture; blocks, and uses half a core."""
    foresight = Foresight(picture, None)
    snapshot = picture.snapshot
    seen = frozenset(snapshot.workloads)
    is_too_large = len(seen) > MOST_WORKLOADS
    outlook = Outlook(snapshot.now_s, seen=seen, is_too_large=is_too_large)
    # A run is useful only for pending workloads that depend on stated run times alone.
    waiting = (snapshot.workloads[key] for key in picture.plan.waits if key in seen)
    if not is_too_large and any(not foresight.unstated_before(each) for each in waiting):
        ahead = Ahead(picture, pause=_Rest())
        starts = dict(ahead.run())
        outlook = Outlook(snapshot.now_s, starts, seen, is_cut=ahead.is_cut)
    return Foresight(picture, outlook)


class _Rest:
    """Sleeps as long as the time since its last call: the thread works half of the time."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    def __call__(self) -> None:
        time.sleep(time.monotonic() - self._since)
        self._since = time.monotonic()
