"""The scheduler on the real fast path, in virtual time: which gates open and close, and when."""

import pytest

from gpu_shim.policy.foresight import Turn
from gpu_shim.protocol.wire import Gate, Kind, Message
from tests.unit.gpu_shim.scheduler_bench import BEGIN, LEASE, MS, Bench, two


def test_alone_without_limit_the_gate_is_simply_open(is_ahead: bool) -> None:
    bench = Bench(("a", 500, 1000), is_ahead=is_ahead)
    bench.want(0)
    before = bench.gate("a")
    assert before[0] == Gate.OPEN
    for _ in range(5):
        bench.wait(LEASE)
    assert bench.gate("a") == before


def test_a_newcomer_waits_for_the_lease_to_end_and_the_holder_to_drain(is_ahead: bool) -> None:
    bench = Bench(("a", 500, 1000), ("b", 500, 1000), is_ahead=is_ahead)
    bench.want(0)
    bench.now += 100 * MS
    bench.want(1)
    assert bench.gate("a")[0] == Gate.LEASED
    bench.wait()
    assert bench.now == BEGIN + LEASE
    assert bench.open == set()
    bench.now += 3 * MS
    bench.drain(0)
    assert bench.open == {"b"}


def test_gates_of_two_containers_are_never_open_at_once(is_ahead: bool) -> None:
    bench = two(is_ahead, 250, 750)
    for _ in range(200):
        bench.wait()
        assert len(bench.open) <= 1
        bench.now += 3 * MS
        for key in (0, 1):
            bench.drain(key)
        assert len(bench.open) == 1
    ran = bench.now - BEGIN
    assert bench.held_ns("a") + bench.held_ns("b") <= ran
    assert abs(bench.held_ns("a") / ran - 0.25) < 0.02


@pytest.mark.parametrize("every_ms", [20, 200])
def test_a_container_that_pauses_for_a_moment_loses_a_lease_at_most(
    is_ahead: bool, every_ms: int
) -> None:
    """A program that waits for its kernels may be seen idle before it launches the next."""
    bench, ran_ms, n_pauses = two(is_ahead, 250, 750), 0, 0
    while bench.now < BEGIN + 30_000 * MS:
        closing = 1 if "b" in bench.open else 0
        bench.wait(5 * MS)
        ran_ms += 5 * (bench.open == {"b"})
        if bench.open == {"b"} and ran_ms >= every_ms:
            ran_ms, n_pauses = 0, n_pauses + 1
            bench.yields(1)
            bench.drain(1)
            bench.now += MS // 10
            bench.want(1)
        if not bench.open:
            bench.now += 3 * MS
            bench.drain(closing)
            bench.drain(1 - closing)
    assert n_pauses > 80
    assert abs(bench.scheduler.node.cards["x"].tenants["a"].lag) < 1.5 * LEASE


def test_a_container_that_yields_unchallenged_is_parked_with_its_gate_open(is_ahead: bool) -> None:
    bench = Bench(("a", 500, 1000), ("b", 500, 1000), is_ahead=is_ahead)
    bench.want(0)
    bench.now += 10 * MS
    bench.yields(0)
    assert bench.open == {"a"}
    bench.now += 10 * MS
    bench.want(1)
    assert bench.open == set()
    bench.drain(0)
    assert bench.open == {"b"}


def test_a_container_that_yields_in_its_lease_hands_over_at_once(is_ahead: bool) -> None:
    bench = two(is_ahead)
    bench.now += 10 * MS
    bench.yields(0)
    bench.drain(0)
    assert bench.open == {"b"}
    assert bench.held_ns("a") == 10 * MS


def test_a_process_that_dies_in_its_lease_hands_over_at_once(is_ahead: bool) -> None:
    bench = two(is_ahead)
    bench.now += 10 * MS
    bench.end(0)
    assert bench.open == {"b"}


def test_a_process_that_never_used_the_card_is_not_waited_for(is_ahead: bool) -> None:
    bench = Bench(("a", 500, 1000), ("b", 500, 1000), is_ahead=is_ahead)
    bench.join("a", 0)
    bench.want(0)
    bench.want(1)
    bench.wait()
    bench.drain(0)
    assert bench.open == {"b"}


def test_all_processes_of_a_container_are_waited_for(is_ahead: bool) -> None:
    bench = Bench(("a", 500, 1000), ("b", 500, 1000), is_ahead=is_ahead)
    second = bench.join("a", 0)
    for key in (0, second, 1):
        bench.want(key)
    bench.wait()
    bench.drain(0)
    assert bench.open == set()
    bench.drain(second)
    assert bench.open == {"b"}


def test_a_container_that_does_not_drain_is_overtaken_and_charged(is_ahead: bool) -> None:
    bench = two(is_ahead)
    while bench.open != {"b"}:
        bench.wait()
    assert bench.now == BEGIN + LEASE + 2_000 * MS
    assert bench.scheduler.cards["x"].n_late == 1
    assert bench.scheduler.node.cards["x"].tenants["a"].overrun_ns == 2_000 * MS


def test_a_stopped_container_is_charged_nothing_and_takes_nothing(is_ahead: bool) -> None:
    bench = two(is_ahead, 50, 950)
    while "a" not in bench.open:
        bench.drain(1) if not bench.open else bench.wait()
    while bench.open != {"b"}:
        bench.wait()
    tenant, record = bench.scheduler.node.cards["x"].tenants["a"], bench.scheduler.cards["x"]
    with bench.deciding():
        bench.scheduler.set_stopped("a", True, bench.now)
    held_ns = tenant.held_ns
    assert held_ns <= LEASE + 2_000 * MS
    for _ in range(60):
        bench.wait(1_000 * MS)
        assert bench.open == {"b"}
    assert (tenant.held_ns, record.n_late) == (held_ns, 1)
    with bench.deciding():
        bench.scheduler.set_stopped("a", False, bench.now)
    bench.drain(0)
    began = bench.now
    while "a" not in bench.open:
        bench.drain(1) if not bench.open else bench.wait()
    assert bench.now - began < 60_000 * MS


def test_a_strict_container_alone_is_closed_for_what_is_not_its_share(is_ahead: bool) -> None:
    bench = Bench(("a", 500, 500), is_ahead=is_ahead)
    bench.want(0)
    assert bench.gate("a")[0] == Gate.LEASED
    bench.wait()
    bench.drain(0)
    assert bench.open == set()
    bench.wait()
    assert bench.open == {"a"}


def test_a_stale_drain_means_nothing(is_ahead: bool) -> None:
    bench = two(is_ahead)
    bench.wait()
    bench.say(0, Kind.DRAINED, "x", 0)
    assert bench.open == set()


def test_a_process_that_drains_after_it_was_overtaken_does_not_count_for_the_next(
    is_ahead: bool,
) -> None:
    bench = two(is_ahead)
    while bench.open != {"b"}:
        bench.wait()
    generation = bench.gate("a")[1]
    while bench.open:
        bench.wait()
    bench.say(0, Kind.DRAINED, "x", generation)
    assert bench.open == set()
    bench.drain(1)
    assert bench.open


def test_a_container_that_paused_and_drained_has_no_lease_to_go_on_with(is_ahead: bool) -> None:
    bench = two(is_ahead)
    bench.now += 10 * MS
    bench.yields(0)
    bench.drain(0)
    bench.want(0)
    assert bench.open == {"b"}


def test_a_container_that_is_removed_frees_the_card(is_ahead: bool) -> None:
    bench = two(is_ahead)
    bench.now += 10 * MS
    bench.remove("a")
    assert bench.gate("b")[0] == Gate.OPEN


def test_a_container_that_is_planned_next_and_removed_is_not_let_in(is_ahead: bool) -> None:
    bench = two(is_ahead)
    bench.remove("b")
    for _ in range(3):
        bench.wait(LEASE)
        bench.drain(0)
    assert bench.gate("b")[0] == Gate.CLOSED
    assert bench.open == {"a"}


def test_a_container_that_comes_after_one_that_was_alone_has_the_card(is_ahead: bool) -> None:
    """The gate that the first one leaves open is not the second one's."""
    bench = Bench(("a", 500, 1000), ("b", 500, 1000), is_ahead=is_ahead)
    bench.want(0)
    bench.now += 300 * MS
    bench.end(0)
    bench.remove("a")
    bench.want(1)
    assert bench.gate("b")[0] == Gate.OPEN


# -- what is planned ahead ----------------------------------------------------------------------


def turn(bench: Bench) -> Turn | None:
    return bench.scheduler.cards["x"].turn


def test_a_planned_hand_over_happens_without_the_scheduler() -> None:
    bench = two(True)
    planned = turn(bench)
    assert planned is not None
    assert bench.scheduler.next_ns() == 0
    bench.now = planned.close_ns
    bench.fast_path.advance(bench.now)
    assert bench.open == set()
    name, connection = bench.processes[0]
    bench.now += 3 * MS
    message = Message(Kind.DRAINED, 0, bench.gate(name)[1])
    assert bench.fast_path.receive(connection, message.encode(), bench.now)
    assert bench.open == {"b"}
    bench.now += 5 * MS
    bench.decide()
    assert bench.held_ns("a") == LEASE + 3 * MS


def test_a_plan_is_void_when_a_container_stops_wanting_the_card() -> None:
    bench = two(True)
    before = turn(bench)
    assert before is not None
    assert before.terms is not None
    bench.now += 10 * MS
    bench.end(1)
    after = turn(bench)
    assert after is not None
    assert after.terms is None or after.terms.name == "a"


def test_nothing_is_planned_for_a_gate_without_a_deadline() -> None:
    bench = Bench(("a", 500, 1000), is_ahead=True)
    bench.want(0)
    assert turn(bench) is None
