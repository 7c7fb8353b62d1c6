"""Repeated forecasts beside the answers."""

import asyncio

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from extender.view import forecaster
from extender.view.forecaster import Forecaster
from extender.view.picture import Picture
from tests.support.snapshots import Cluster


def cluster(*, has_started: bool) -> Cluster:
    made = Cluster()
    made.node("n0", gpus=2)
    made.project("a", quota=2)
    made.job("run", "a", gpus=1, on="n0", ran=0, run=1200)
    if has_started:
        made.job("wait", "a", gpus=1, on="n0", ran=0)
    else:
        made.job("other", "a", gpus=1, on="n0", ran=0, run=600)
        made.job("wait", "a", gpus=1)
    return made


def missed() -> float:
    labels = {"word": "no forecast", "outcome": "missed"}
    return REGISTRY.get_sample_value("ballast_view_forecasts_total", labels) or 0.0


async def test_a_forecast_is_reported_after_a_look_and_counted_when_it_came_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forecaster, "EVERY_S", 0.01)
    waits, runs = (Picture(cluster(has_started=started).snapshot()) for started in (False, True))
    given, before = [waits], missed()
    told = Forecaster(lambda: given[0])
    workload = waits.snapshot.workloads["ns/wait"]
    assert "ask again" in told.tell(waits, workload).message
    task = asyncio.create_task(told.run())
    try:
        async with asyncio.timeout(30):
            while not told.tell(Picture(waits.snapshot), workload).earliest:
                await asyncio.sleep(0.01)
            # It starts at once, nine minutes before it was said to.
            given[0] = runs
            while missed() == before:
                await asyncio.sleep(0.01)
            given[0] = waits
            while not (after := told.tell(Picture(waits.snapshot), workload)).earliest:
                await asyncio.sleep(0.01)
    finally:
        task.cancel()
    assert missed() == before + 1
    assert (after.checked, after.held) == (1, 0)


async def test_a_look_that_breaks_ends_neither_the_answers_nor_the_next_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forecaster, "EVERY_S", 0.01)
    good = Picture(cluster(has_started=False).snapshot())
    broken = Picture(cluster(has_started=False).snapshot())
    del broken.snapshot.nodes
    given = [good, broken]
    told = Forecaster(lambda: given.pop() if len(given) > 1 else good)
    with capture_logs() as logs:
        task = asyncio.create_task(told.run())
        try:
            workload = good.snapshot.workloads["ns/wait"]
            async with asyncio.timeout(30):
                while not told.tell(Picture(good.snapshot), workload).earliest:
                    await asyncio.sleep(0.01)
        finally:
            task.cancel()
    assert [each["event"] for each in logs] == ["a look ahead could not be made"]
