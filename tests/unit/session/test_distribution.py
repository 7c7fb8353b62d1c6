"""Which tests stay together on one worker, and in which order they start."""

import pytest

from tests.support.session.distribution import places, unit_of


@pytest.mark.parametrize(
    ("nodeid", "unit"),
    [
        ("tests/e2e/test_node.py::test_a", "tests/e2e/"),
        ("tests/attacks/test_verbs.py::test_a[x::y]", "tests/attacks/"),
        ("tests/integration/cycle/test_x.py::TestY::test_z", "tests/integration/cycle/test_x.py"),
        ("tests/scenarios/test_unrelated.py::test_a[x]", "tests/scenarios/test_unrelated.py"),
        ("tests/unit/api/test_units.py::test_a[1]", "tests/unit/api/test_units.py::test_a[1]"),
    ],
)
def test_tests_that_share_a_fixture_stay_together(nodeid: str, unit: str) -> None:
    assert unit_of(nodeid) == unit


def test_long_units_come_first_and_short_tests_last() -> None:
    nodeids = ["tests/unit/a.py::b", "tests/integration/a.py::b", "tests/e2e/a.py::b"]
    assert in_order(nodeids) == nodeids[::-1]


def test_modules_that_wait_and_tests_that_compute_are_mixed() -> None:
    modules = [f"tests/integration/a/test_{ix}.py::b" for ix in range(3)]
    alone = [f"tests/property/a/test_{ix}.py::b" for ix in range(3)]
    cases = [f"tests/scenarios/a.py::b[c/{ix}]" for ix in range(6)]
    told = in_order([*modules, *alone, *cases])
    assert [each.split("/")[1] for each in told] == [
        *("integration", "property", "scenarios", "scenarios") * 3
    ]
    assert [each for each in told if each in cases] == cases


def test_tests_of_a_module_stay_in_their_order() -> None:
    nodeids = [f"tests/integration/a.py::{name}" for name in ("z", "a[2]", "a[1]")]
    assert in_order(nodeids) == nodeids


def in_order(nodeids: list[str]) -> list[str]:
    """The tests as they are handed out."""
    return sorted(nodeids, key=places(nodeids).__getitem__)
