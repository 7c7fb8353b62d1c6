"""Nodes on which kube-scheduler did not bind a pod: what is stored, and for how long."""

import pytest

from extender.state.refusals import MAX_NODES, NONE, Refusals, read_refusals, write_refusals


def refused(*nodes: str, now_s: int = 1000) -> Refusals:
    refusals = NONE
    for node in nodes:
        refusals = refusals.after(node, now_s, wait_s=30)
    return refusals


def test_first_refusal_bars_the_node_and_leaves_the_others_open() -> None:
    once = refused("n1")
    assert once.barred(1029) == ("n1",)
    assert once.barred(1030) == ()
    assert once.until <= 1000
    assert not once.is_doubtful


def test_second_refusal_makes_the_pod_wait_and_its_workload_doubtful() -> None:
    twice = refused("n1", "n2")
    assert twice.until == 1030
    assert twice.is_doubtful


def test_waits_double_on_the_same_node_and_end_somewhere() -> None:
    waits = [refused(*["n1"] * n).nodes[0].until - 1000 for n in (1, 2, 3, 7, 40)]
    assert waits == [30, 60, 120, 1920, 1920]


def test_only_the_last_nodes_are_remembered() -> None:
    many = refused(*(f"n{number}" for number in range(20)))
    assert [each.name for each in many.nodes] == [f"n{n}" for n in range(20 - MAX_NODES, 20)]
    assert many.count == 20


def test_what_is_written_is_read_again() -> None:
    refusals = refused("node-a.example", "n2", "n2").after("n3", 1000, 30, "0/4 nodes | so\n it is")
    assert refusals.why == "0/4 nodes | so it is"
    assert read_refusals(write_refusals(refusals)) == refusals


@pytest.mark.parametrize(
    "text", ["", "2", "x y", "1 2 n1", "1 2 n1=3", "-1 2", "1 2 n1=1:2 ", "1 2 | a\nb", "٣ 2"]
)
def test_what_is_not_understood_says_nothing(text: str) -> None:
    assert read_refusals(text) == NONE
