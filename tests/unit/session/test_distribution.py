"""Which tests stay together on one worker, and which are handed out first."""

import pytest

from tests.support.session.distribution import rank_of, unit_of


@pytest.mark.parametrize(
    ("nodeid", "unit"),
    [
        ("tests/e2e/test_node.py::test_a", "tests/e2e/"),
        ("tests/attacks/test_verbs.py::test_a[x::y]", "tests/attacks/"),
        ("tests/integration/cycle/test_x.py::TestY::test_z", "tests/integration/cycle/test_x.py"),
        ("tests/unit/api/test_units.py::test_a[1]", "tests/unit/api/test_units.py::test_a[1]"),
    ],
)
def test_tests_that_share_a_fixture_stay_together(nodeid: str, unit: str) -> None:
    assert unit_of(nodeid) == unit


def test_the_longest_units_come_first() -> None:
    nodeids = ["tests/unit/a.py::b", "tests/integration/a.py::b", "tests/e2e/a.py::b"]
    assert sorted(nodeids, key=rank_of) == nodeids[::-1]
