"""How long containers wait: from the moment they want the card until their gate opens."""

from gpu_shim.agent.waits import KEPT, Waits

KEY = ("a", "GPU-0")


def wait(waits: Waits, from_ns: int, to_ns: int) -> None:
    """The gate is closed on somebody who has work, and opens again."""
    waits.closed(KEY)
    waits.heard(KEY, True, from_ns)
    waits.opened(KEY, to_ns)


def test_a_wait_counts_from_the_first_who_asks() -> None:
    waits = Waits()
    for now_ns in (100, 150):
        waits.heard(KEY, True, now_ns)
    waits.opened(KEY, 400)
    assert waits.p99_ns(KEY) == 300


def test_who_goes_on_working_waits_each_time_its_gate_is_closed() -> None:
    waits = Waits()
    waits.opened(KEY, 0)
    wait(waits, 100, 350)
    wait(waits, 400, 430)
    assert waits.p99_ns(KEY) == 250


def test_who_begins_while_its_gate_is_open_does_not_wait() -> None:
    waits = Waits()
    waits.opened(KEY, 0)
    waits.heard(KEY, True, 100)
    waits.opened(KEY, 400)
    assert waits.p99_ns(KEY) == 0


def test_who_has_nothing_more_to_do_waits_no_longer() -> None:
    waits = Waits()
    waits.heard(KEY, True, 100)
    waits.heard(KEY, False, 200)
    waits.heard(KEY, True, 1000)
    waits.opened(KEY, 1100)
    assert waits.p99_ns(KEY) == 100


def test_one_in_a_hundred_is_left_out() -> None:
    waits = Waits()
    for took in [*range(1, 100), 5000]:
        wait(waits, 0, took)
    assert waits.p99_ns(KEY) == 99


def test_old_waits_are_forgotten_and_so_are_those_of_who_is_gone() -> None:
    waits = Waits()
    for took in [9000] * 20 + [5] * KEPT:
        wait(waits, 0, took)
    assert waits.p99_ns(KEY) == 5
    waits.forget("a")
    assert waits.p99_ns(KEY) == 0
