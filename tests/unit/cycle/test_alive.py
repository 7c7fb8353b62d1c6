"""A decision that hangs ends the process: kubelet checks `/healthz`."""

import asyncio
import time
from unittest.mock import create_autospec

import aiohttp
import pytest

from extender.cycle import term as program
from extender.cycle.controller import Controller
from extender.cycle.replica import ControlOptions
from extender.cycle.term import Term
from extender.http.app import build_observation_app
from extender.http.server import Address, Listener
from extender.kube.client import Client
from extender.kube.election import Election
from extender.kube.reflector import Reflector


def controller() -> Controller:
    client = create_autospec(Client, instance=True)
    return Controller(client, client, ControlOptions("me"))


async def test_healthz_says_when_a_decision_does_not_end() -> None:
    made = controller()
    app, address = build_observation_app(made, made.is_alive), Address("127.0.0.1", 0)
    async with Listener(app, address) as listener, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{listener.port}/healthz"
        for since, status in (
            (None, 200),
            (time.monotonic() - 5, 200),
            (time.monotonic() - 600, 503),
            (None, 200),
        ):
            made.deciding_since = since
            async with session.get(url) as got:
                assert got.status == status


async def test_a_model_that_can_not_be_refreshed_ends_no_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would end again at each start, and no replica would lead."""
    made, asked = controller(), asyncio.Event()

    def snapshot(_now_s: int) -> None:
        asked.set()
        raise OverflowError

    monkeypatch.setattr(made.state, "snapshot", snapshot)
    monkeypatch.setattr("extender.cycle.controller._WARM_EVERY_S", 0.0)
    made.warm_up()
    asked.clear()
    warming = asyncio.create_task(made.stay_warm())
    await asked.wait()
    await asyncio.sleep(0)
    assert not warming.done()
    warming.cancel()


async def test_a_decision_is_noted_from_its_start_to_its_end_however_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = controller()
    term = Term(made, transitions=3)
    noted: list[float | None] = []

    def decide(*_: object) -> None:
        noted.append(made.deciding_since)
        raise ArithmeticError

    monkeypatch.setattr(program, "timed_decision", decide)
    with pytest.raises(ArithmeticError):
        await term.decide(made.state.snapshot(1_000))
    assert noted[0] is not None
    assert made.deciding_since is None


async def test_the_model_is_up_to_date_before_there_is_a_lease_to_lose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first snapshot of a large cluster holds the loop for longer than a renewal may take."""
    made = controller()
    done: list[str] = []

    async def listed(_: object) -> None:
        pass

    async def stand(*_: object) -> None:
        done.append("election")
        raise ArithmeticError

    monkeypatch.setattr(Reflector, "run", listed)
    monkeypatch.setattr(Reflector, "wait_synced", listed)
    monkeypatch.setattr(Election, "run", stand)
    monkeypatch.setattr(made.state, "snapshot", lambda _now_s: done.append("snapshot"))
    with pytest.raises(ExceptionGroup):
        await made.run()
    assert done == ["snapshot", "election"]
