"""Errors, silence and recovery of a card, from the fake driver to the agent's report."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from extender.api.kinds import GpuNode
from extender.api.objects import ObjectMeta
from gpu_shim.agent.agent import Agent
from gpu_shim.agent.cards import Cards
from gpu_shim.agent.health import Health
from gpu_shim.agent.nvml import Nvml
from gpu_shim.agent.watch import HealthWatch
from gpu_shim.arbiter.arbiter import Arbiter
from gpu_shim.protocol.pages import Library
from tests.integration.gpu_shim.containers import until
from tests.support.fakecuda import Card as FakeCard


@dataclass(slots=True)
class Watched:
    """A card, and what is said of it."""

    card: FakeCard
    agent: Agent
    health: Health

    async def is_said(self, state: str) -> None:
        await until(lambda: [each.health for each in self.agent.devices] == [state])


@pytest.fixture
async def watched(
    place: Path, driver: Path, native: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Watched]:
    monkeypatch.setenv("FAKECUDA_STATE", str(place / "card"))
    card = FakeCard(place / "card")
    # A library maps its card once; a copy is another library.
    nvml = Nvml(str(shutil.copy(driver / "libnvidia-ml.so.1", place / "nvml.so")))
    library = Library(native / "libballast-pages.so")
    agent = Agent("n", nvml.devices(), Arbiter(library), native, place / "pods")
    health = Health(place / "health.json", "boot")
    cards = Cards(agent, agent.devices, health)
    cards.begin(None)
    agent.apply(GpuNode(metadata=ObjectMeta(name="n")))
    watching = asyncio.create_task(HealthWatch(nvml, cards, look_s=0.05).run())
    yield Watched(card, agent, health)
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching


async def test_a_card_with_an_error_is_unhealthy_until_the_driver_asks_for_nothing(
    watched: Watched,
) -> None:
    await watched.is_said("Healthy")
    watched.card.ail(xid=95, recovery=1)
    await watched.is_said("Unhealthy")
    await until(lambda: watched.health.n_xids == {95: 1})
    watched.card.ail()
    await watched.is_said("Healthy")


async def test_an_error_of_a_program_is_counted_and_no_more(watched: Watched) -> None:
    watched.card.ail(xid=31)
    await until(lambda: watched.health.n_xids == {31: 1})
    assert not watched.health.ill


async def test_the_error_with_which_a_card_fell_off_the_bus_is_not_lost_with_it(
    watched: Watched,
) -> None:
    watched.card.ail(xid=31)
    await until(lambda: watched.health.n_xids == {31: 1})
    watched.card.ail(xid=79, is_lost=True)
    await until(lambda: watched.health.n_xids == {31: 1, 79: 1})
    await until(lambda: "Xid 79" in next(iter(watched.health.ill.values()), ""))


async def test_a_card_that_falls_off_the_bus_and_comes_back_is_followed(watched: Watched) -> None:
    watched.card.ail(is_lost=True)
    await watched.is_said("Unhealthy")
    watched.card.ail()
    await watched.is_said("Healthy")
