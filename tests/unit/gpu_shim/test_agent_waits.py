"""How long containers wait: from their request for the card until their gate opens."""

from gpu_shim.agent.waits import KEPT, Waits

KEY = ("a", "GPU-0")


def wait(waits: Waits, from_ns: int, to_ns: int) -> None:
    """The gate is closed on a container with work, and opens again."""
    waits.gate_closed(*KEY)
    waits.demand(*KEY, True, from_ns)
    waits.gate_opened(*KEY, to_ns)


def test_a_wait_counts_from_the_first_demand() -> None:
    waits = Waits()
    for now_ns in (100, 150):
        waits.demand(*KEY, True, now_ns)
    waits.gate_opened(*KEY, 400)
    assert waits.p99_ns(KEY) == 300


def test_a_busy_container_waits_each_time_its_gate_is_closed() -> None:
    waits = Waits()
    waits.gate_opened(*KEY, 0)
    wait(waits, 100, 350)
    wait(waits, 400, 430)
    assert waits.p99_ns(KEY) == 250


def test_a_container_that_starts_behind_an_open_gate_does_not_wait() -> None:
    waits = Waits()
    waits.gate_opened(*KEY, 0)
    waits.demand(*KEY, True, 100)
    waits.gate_opened(*KEY, 400)
    assert waits.p99_ns(KEY) == 0


def test_a_container_without_work_waits_no_longer() -> None:
    waits = Waits()
    waits.demand(*KEY, True, 100)
    waits.demand(*KEY, False, 200)
    waits.demand(*KEY, True, 1000)
    waits.gate_opened(*KEY, 1100)
    assert waits.p99_ns(KEY) == 100


def test_the_longest_of_a_hundred_waits_is_left_out() -> None:
    waits = Waits()
    for took in [*range(1, 100), 5000]:
        wait(waits, 0, took)
    assert waits.p99_ns(KEY) == 99


def test_old_waits_and_those_of_a_removed_container_are_forgotten() -> None:
    waits = Waits()
    for took in [9000] * 20 + [5] * KEPT:
        wait(waits, 0, took)
    assert waits.p99_ns(KEY) == 5
    waits.forget("a")
    assert waits.p99_ns(KEY) == 0
