"""How much memory of a shared card a claim gets.

The expected figures are those of kube-scheduler 1.36 (`consumable_capacity.go`).
"""

from typing import Any

import msgspec
import pytest

from extender.api.claimed_memory import MemorySteps, RequestPolicy, memory_steps, read_mib

GIB = 1024


def steps(**policy: Any) -> MemorySteps:
    return memory_steps(msgspec.convert({"default": "1Gi", **policy}, type=RequestPolicy))


def test_card_without_a_policy_gives_what_is_asked_for() -> None:
    assert memory_steps(None).given_mib(777) == 777
    assert steps().given_mib(777) == 777


@pytest.mark.parametrize(
    ("asked", "given"),
    [(1, 2 * GIB), (2 * GIB, 2 * GIB), (2 * GIB + 1, 5 * GIB), (8 * GIB, 8 * GIB), (9 * GIB, 0)],
)
def test_range_rounds_up_to_the_next_step_from_its_least(asked: int, given: int) -> None:
    valid = {"min": "2Gi", "step": "3Gi", "max": "10Gi"}
    assert steps(validRange=valid).given_mib(asked) == given


def test_range_without_a_step_rounds_up_to_its_least_alone() -> None:
    found = steps(validRange={"min": "2Gi"})
    assert [found.given_mib(mib) for mib in (1, 3000)] == [2 * GIB, 3000]


@pytest.mark.parametrize(("asked", "given"), [(1, GIB), (GIB + 1, 4 * GIB), (4 * GIB + 1, 0)])
def test_value_that_is_given_is_the_next_one_listed(asked: int, given: int) -> None:
    assert steps(validValues=["1Gi", "4Gi"]).given_mib(asked) == given


@pytest.mark.parametrize(("asked", "mib"), [("10Gi", 10240), ("10240Mi", 10240), ("10G", 0)])
def test_only_whole_mib_are_read(asked: str, mib: int) -> None:
    assert read_mib(asked) == mib
