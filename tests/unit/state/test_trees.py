"""Whether pods satisfy the minimums of a tree of groups; one rule for model, policy and files."""

import pytest

from extender.state.model import GroupView, TopologyRule
from extender.state.trees import collapsed, is_satisfied

LEADER = GroupView(name="leader", min_member=1)
WORKERS = GroupView(name="workers", min_member=2)
FREE = GroupView(name="free", min_member=0)
BOTH = GroupView(name="", min_member=3, min_groups=2, children=(LEADER, WORKERS))
EITHER = GroupView(name="", min_member=1, min_groups=1, children=(LEADER, WORKERS))
EMPTY = GroupView(
    name="", min_member=1, min_groups=2, children=(LEADER, GroupView(name="x", min_member=0))
)


@pytest.mark.parametrize(
    ("tree", "groups", "expected"),
    [
        (BOTH, "", True),
        (BOTH, "leader workers workers", True),
        (BOTH, "leader leader leader", False),
        (BOTH, "leader workers", False),
        (EITHER, "leader", True),
        (EITHER, "leader workers", False),
        (EMPTY, "leader", True),
    ],
)
def test_tree_and_every_group_that_holds_pods_needs_its_minimum(
    tree: GroupView, groups: str, expected: bool
) -> None:
    assert is_satisfied(tree, groups.split()) is expected


def test_pods_outside_every_group_count_for_the_tree_itself() -> None:
    flat = GroupView(name="", min_member=2)
    assert is_satisfied(flat, ["", "of an older list"])
    tree = GroupView(name="", min_member=2, min_groups=1, children=(LEADER, WORKERS))
    assert is_satisfied(tree, ["leader", ""])
    assert not is_satisfied(tree, ["", ""])


def test_a_group_with_one_group_below_it_is_that_group() -> None:
    inner = GroupView(name="r0", min_member=2, min_groups=1, children=(WORKERS,))
    assert collapsed(GroupView(name="", min_member=1, children=(inner,))) == WORKERS
    larger = GroupView(name="", min_member=5, min_groups=1, children=(inner,))
    assert collapsed(larger).min_member == 5
    assert collapsed(BOTH) is BOTH


def test_a_group_that_asks_for_nearness_keeps_a_single_group_that_asks_for_another() -> None:
    zone, rack = (TopologyRule("t", required=level) for level in ("zone", "rack"))
    near = GroupView(name="workers", min_member=2, topology=rack)
    both = GroupView(name="", min_member=2, min_groups=1, topology=zone, children=(near,))
    assert collapsed(both) is both
    outer = GroupView(name="", min_member=2, min_groups=1, topology=zone, children=(WORKERS,))
    assert collapsed(outer) == GroupView(name="workers", min_member=2, topology=zone)
