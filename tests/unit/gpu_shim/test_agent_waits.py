"""How long containers wait, from the first who asks until the gate opens."""

from gpu_shim.agent.waits import KEPT, Waits

KEY = ("a", "GPU-0")


def test_a_wait_counts_from_the_first_who_asks() -> None:
    waits = Waits()
    waits.wanted(KEY, 100)
    waits.wanted(KEY, 150)
    waits.opened(KEY, 400)
    assert waits.p99_ns(KEY) == 300


def test_a_gate_that_nobody_waited_for_is_no_wait() -> None:
    waits = Waits()
    waits.opened(KEY, 400)
    assert waits.p99_ns(KEY) == 0


def test_one_in_a_hundred_is_left_out() -> None:
    waits = Waits()
    for took in [*range(1, 100), 5000]:
        waits.wanted(KEY, 0)
        waits.opened(KEY, took)
    assert waits.p99_ns(KEY) == 99


def test_old_waits_are_forgotten_and_so_are_those_of_who_is_gone() -> None:
    waits = Waits()
    for took in [9000] * 20 + [5] * KEPT:
        waits.wanted(KEY, 0)
        waits.opened(KEY, took)
    assert waits.p99_ns(KEY) == 5
    waits.forget("a")
    assert waits.p99_ns(KEY) == 0
