"""Which crashes count, and that every point is tried."""

from collections import Counter
from random import Random
from typing import Any

import pytest

from tests.faults import crashes
from tests.faults.crashes import POINTS, crash_at_writes
from tests.faults.stage import NotDoneError


class _Program:
    is_alive = True
    was_killed = True


class _Stage:
    """Programs that end at once at the failpoints that they reach."""

    def __init__(self, *, reaches: bool) -> None:
        self.programs = {name: _Program() for name in ("control", "other", "serve")}
        self.crashes: Counter[str] = Counter()
        self.armed: Counter[str] = Counter()
        self.ended: list[str] = []
        self.failpoints: dict[str, str] = {}
        self._reaches = reaches
        self._n_terms = 0

    def start_armed(self, name: str, failpoint: str) -> None:
        self.failpoints[name] = failpoint
        self.programs[name].is_alive = not self._reaches

    def term(self) -> str:
        """The first controller takes the Lease anew at each look."""
        self._n_terms += 1
        return f"control {self._n_terms}"

    def kill(self, name: str) -> None:
        self.failpoints.pop(name, None)

    def start(self, name: str) -> None:
        self.programs[name].is_alive = True


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    monkeypatch.setattr(crashes, "CRASHING_S", 0.5)
    monkeypatch.setattr(crashes, "FIRST_CRASH_S", 0.5)
    monkeypatch.setattr(crashes, "REACHED_S", 0.05)
    monkeypatch.setattr(crashes, "WORKS_S", 0.05)
    monkeypatch.setattr(crashes, "POLL_S", 0.01)
    return _Stage(reaches=request.param)


@pytest.mark.parametrize("stage", [True], indirect=True)
async def test_each_point_is_tried_before_any_is_tried_again(stage: Any) -> None:
    assert (await crash_at_writes(stage, Random(1))).endswith(" crashes")
    assert stage.crashes == stage.armed
    for of in ("control", "serve"):
        tried = [stage.armed[str(point)] for point in POINTS if point.of == of]
        assert max(tried) - min(tried) <= 1


@pytest.mark.parametrize("stage", [False], indirect=True)
async def test_a_point_that_is_not_reached_is_no_crash_and_the_leader_tries_another(
    stage: Any,
) -> None:
    with pytest.raises(NotDoneError):
        await crash_at_writes(stage, Random(1))
    assert not stage.crashes
    of_controllers = sum(count for point, count in stage.armed.items() if "control" in point)
    assert of_controllers > 2
    assert not stage.failpoints
    assert all(each.is_alive for each in stage.programs.values())


@pytest.mark.parametrize("stage", [True], indirect=True)
async def test_a_program_that_ends_by_itself_is_no_crash_and_is_reported(stage: Any) -> None:
    stage.programs["serve"].was_killed = False
    await crash_at_writes(stage, Random(1))
    assert set(stage.ended) == {"serve"}
    assert not any(point.startswith("serve") for point in stage.crashes)
