"""Which picture answers use: a new one if decisions are quick, else a prepared one."""

import pytest

from extender.view import program
from extender.view.program import View, ViewOptions


class NoClient:
    """Nothing is asked of it here."""


@pytest.fixture
def view() -> View:
    return View(NoClient(), ViewOptions("", "", ""))  # type: ignore[arg-type]


async def test_lists_are_of_now_where_deciding_is_quick(
    view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "FRESH_S", -1.0)
    await view.decide_ahead()
    ahead, _ = view.take()
    assert view.take_decided()[0] is not ahead


async def test_lists_are_of_the_picture_that_was_decided_ahead_where_deciding_takes_long(
    view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "FRESH_S", -1.0)
    monkeypatch.setattr(program, "QUICK_S", -1.0)
    assert not view.take_decided()[0].is_decided
    await view.decide_ahead()
    first, as_of = view.take_decided()
    assert first.is_decided
    assert view.take()[0] is not first
    assert view.take_decided() == (first, as_of)
    await view.decide_ahead()
    assert view.take_decided()[0] is not first


async def test_a_decision_that_fails_ahead_leaves_answers_of_now(
    view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "QUICK_S", -1.0)
    await view.decide_ahead()
    ahead, _ = view.take_decided()

    def fail(_picture: object) -> float:
        raise RuntimeError

    monkeypatch.setattr(program, "FRESH_S", -1.0)
    monkeypatch.setattr(program, "_decide", fail)
    await view.decide_ahead()
    assert view.take_decided()[0] is not ahead
