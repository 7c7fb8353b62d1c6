"""An eviction is dropped if its beneficiary is gone, and counted if the beneficiary never ran."""

import asyncio

import pytest
from prometheus_client import REGISTRY

from extender.api.events import Upserted
from extender.cycle import metrics
from extender.cycle.evictions.beneficiaries import RUNS_WITHIN_S
from extender.cycle.evictions.evictor import AT_ONCE
from tests.support.builders import gpu_node, row, whole
from tests.support.metrics import value_of
from tests.unit.cycle.eviction_stage import ApiServer, Stage

pytestmark = pytest.mark.looptime


async def test_nothing_more_is_evicted_for_a_beneficiary_that_is_gone() -> None:
    stage = Stage(60, ApiServer())
    stage.start()
    await asyncio.sleep(0.5)
    stage.drop(stage.needy)
    await asyncio.sleep(10)
    assert len(stage.api.asked) == AT_ONCE
    assert [stage.is_leaving(each) for each in stage.victims] == [True] * AT_ONCE + [False] * (
        60 - AT_ONCE
    )


async def test_nothing_more_is_evicted_when_the_nominated_place_is_lost() -> None:
    stage = Stage(30, ApiServer())
    stage.start()
    await asyncio.sleep(0.5)
    rows = [row(each, whole(at), "bound") for at, each in enumerate(stage.victims)]
    stage.state.apply(Upserted(gpu_node("n1", 30).version(9).holds(*rows).build()))
    await asyncio.sleep(10)
    assert len(stage.api.asked) == AT_ONCE


async def test_evictions_for_a_beneficiary_that_ends_before_it_runs_are_counted() -> None:
    before = value_of(metrics.USELESS_EVICTIONS)
    stage = Stage(2, ApiServer())
    stage.start()
    await asyncio.sleep(5)
    stage.evictor.review()
    assert value_of(metrics.USELESS_EVICTIONS) == before
    stage.drop(stage.needy)
    stage.evictor.review()
    assert value_of(metrics.USELESS_EVICTIONS) == before + 2


def settled(ran: str) -> float:
    labels = {"project": "team-a", "beneficiary": "team-a", "ran": ran}
    found = REGISTRY.get_sample_value("ballast_control_settled_evictions_total", labels)
    return found or 0


async def test_evictions_are_distinguished_by_whether_the_beneficiary_ran() -> None:
    before = settled("yes"), settled("no")
    stage = Stage(2, ApiServer())
    stage.start()
    await asyncio.sleep(5)
    stage.evictor.review()
    assert (settled("yes"), settled("no")) == before
    for each in stage.victims:
        stage.drop(each)
    bound = row(stage.needy, whole(0), "bound")
    stage.state.apply(Upserted(gpu_node("n1", 2).version(9).holds(bound).build()))
    stage.evictor.review()
    assert (settled("yes"), settled("no")) == (before[0] + 2, before[1])

    lost = Stage(2, ApiServer())
    lost.start()
    await asyncio.sleep(5)
    lost.drop(lost.needy)
    lost.evictor.review()
    assert settled("no") == before[1] + 2


async def test_evictions_for_a_beneficiary_that_does_not_run_in_time_are_counted() -> None:
    before = value_of(metrics.USELESS_EVICTIONS)
    stage = Stage(2, ApiServer())
    stage.start()
    await asyncio.sleep(RUNS_WITHIN_S + 5)
    stage.evictor.review()
    assert value_of(metrics.USELESS_EVICTIONS) == before + 2
