"""The scheduler on the real fast path, in virtual time: which gates open and close, and when."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction

import pytest

from gpu_shim.arbiter.fast_path.handover import Handover
from gpu_shim.arbiter.scheduler.card_slots import CardSlots
from gpu_shim.arbiter.scheduler.scheduler import Scheduler
from gpu_shim.policy.foresight import Turn
from gpu_shim.policy.leases import LeaseSettings
from gpu_shim.policy.shares import Claim
from gpu_shim.protocol import wire
from gpu_shim.protocol.wire import Gate, Kind, Message

MS = 1_000_000
LEASE = 250 * MS
BEGIN = 1000 * MS


class Bench:
    """A scheduler with one process in each container, numbered in order.

    `is_ahead`: the fast path is told what comes next, as in the arbiter; else the scheduler does
    everything itself.
    """

    def __init__(
        self, *containers: tuple[str, int, int], cards: str = "x", is_ahead: bool = False
    ) -> None:
        self.fast_path = Handover()
        self.slots = CardSlots(self.fast_path)
        self.scheduler = Scheduler(self.slots, LeaseSettings())
        self.is_ahead = is_ahead
        self.now = BEGIN
        self.pages: dict[str, ctypes.Array[ctypes.c_char]] = {}
        self.cards: dict[str, str] = {}
        self.processes: list[tuple[str, int]] = []
        for name, request, limit in containers:
            self.enter(name, request, limit, cards)

    def enter(self, name: str, request: int, limit: int, cards: str = "x") -> None:
        """A container comes, and with it a process."""
        page = (ctypes.c_char * wire.GRANTS_SIZE)()
        self.pages[name], self.cards[name] = page, cards
        with self.deciding():
            claim = Claim(name, Fraction(request, 1000), Fraction(limit, 1000))
            assert self.scheduler.admit(claim, tuple(cards), self.now) == ""
            slot = self.slots.add(name, ctypes.addressof(page), tuple(cards))
        self.join(name, slot)

    def join(self, name: str, slot: int) -> int:
        """One more process of a container; its key."""
        self.processes.append((name, self.fast_path.add_connection(slot)))
        return len(self.processes) - 1

    @contextmanager
    def deciding(self) -> Iterator[None]:
        """What the arbiter does around everything."""
        events = self.fast_path.begin_decision(self.now)
        self.scheduler.hear(events)
        yield
        self.scheduler.settle(self.now)
        if self.is_ahead:
            self.scheduler.plan_ahead(self.now)
        self.fast_path.end_decision(self.now)

    def decide(self) -> None:
        with self.deciding():
            pass

    def say(self, key: int, kind: Kind, card: str, value: int = 0) -> None:
        """A process sends a message, and the scheduler hears of it if it has to."""
        name, connection = self.processes[key]
        message = Message(kind, self.cards[name].index(card), value)
        assert self.fast_path.receive(connection, message.encode(), self.now)
        self.decide()

    def want(self, key: int, card: str = "x") -> None:
        self.say(key, Kind.WANT, card)

    def yields(self, key: int, card: str = "x") -> None:
        self.say(key, Kind.YIELD, card)

    def drain(self, key: int, card: str = "x") -> None:
        self.say(key, Kind.DRAINED, card, self.gate(self.processes[key][0], card)[1])

    def end(self, key: int) -> None:
        """A process ends: its connection does."""
        assert not self.fast_path.receive(self.processes[key][1], b"", self.now)
        self.decide()

    def remove(self, name: str) -> None:
        with self.deciding():
            self.scheduler.remove(name, self.now)

    def wait(self, ns: int = 0) -> None:
        """Until the next thing happens by itself, or for so long."""
        moments = [at for at in (self.scheduler.next_ns(), self.fast_path.next_ns()) if at]
        self.now = self.now + ns if ns else min(moments)
        self.fast_path.advance(self.now)
        self.decide()

    def gate(self, name: str, card: str = "x") -> tuple[Gate, int]:
        """(gate, generation) as the container sees it."""
        at = wire.GRANTS_HEAD.size + self.cards[name].index(card) * wire.GRANT.size
        state, generation, _ = wire.GRANT.unpack_from(self.pages[name], at)
        return Gate(state), generation

    def deadline(self, name: str, card: str) -> int:
        """When the container's gate closes by itself; 0: never."""
        at = wire.GRANTS_HEAD.size + self.cards[name].index(card) * wire.GRANT.size
        return int(wire.GRANT.unpack_from(self.pages[name], at)[2])

    def open_on(self, card: str) -> set[str]:
        """Containers that may launch on a card."""
        return {
            name
            for name, cards in self.cards.items()
            if card in cards and self.gate(name, card)[0] != Gate.CLOSED
        }

    @property
    def open(self) -> set[str]:
        return self.open_on("x")

    def held_ns(self, name: str) -> int:
        return self.scheduler.node.cards["x"].tenants[name].held_ns


@pytest.fixture(params=[False, True], ids=["decided late", "planned ahead"])
def is_ahead(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def two(is_ahead: bool, a: int = 500, b: int = 500) -> Bench:
    """Two containers of one card, both with work."""
    bench = Bench(("a", a, 1000), ("b", b, 1000), is_ahead=is_ahead)
    bench.want(0)
    bench.want(1)
    return bench


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


def test_a_gang_is_opened_on_all_its_cards_or_on_none(is_ahead: bool) -> None:
    bench = Bench(("g", 500, 1000), cards="xy", is_ahead=is_ahead)
    bench.enter("a", 500, 1000, "x")
    bench.enter("b", 500, 1000, "y")
    wanted = ((0, "x"), (0, "y"), (1, "x"), (2, "y"))
    for key, card in wanted:
        bench.want(key, card)
    held = 0
    for _ in range(100):
        bench.wait()
        for key, card in wanted:
            bench.drain(key, card)
        on_x, on_y = bench.open_on("x"), bench.open_on("y")
        assert len(on_x) <= 1
        assert len(on_y) <= 1
        assert ("g" in on_x) == ("g" in on_y)
        held += "g" in on_x
    assert held > 20


def gang(is_ahead: bool, *others: str) -> Bench:
    """A container of cards x and y, process 0, and others on the named cards, all with work."""
    bench = Bench(("g", 500, 1000), cards="xy", is_ahead=is_ahead)
    for key, card in enumerate(others):
        bench.enter(f"on-{card}", 500, 1000, card)
        bench.want(key + 1, card)
    for card in "xy":
        bench.want(0, card)
    return bench


def test_a_gang_of_cards_that_no_other_wants_renews_without_closing(is_ahead: bool) -> None:
    bench = gang(is_ahead)
    before = [bench.gate("g", card) for card in "xy"]
    for _ in range(20):
        bench.wait()
    assert bench.now > BEGIN + 3 * LEASE
    assert [bench.gate("g", card) for card in "xy"] == before
    assert before[0][0] == Gate.OPEN


def until_begun(bench: Bench) -> None:
    """Until the gang has a lease; other containers drain at once."""
    while bench.gate("g", "x")[0] == Gate.CLOSED:
        bench.wait()
        for key, (name, _) in enumerate(bench.processes[1:], 1):
            bench.drain(key, bench.cards[name])


def until_closed(bench: Bench) -> None:
    """Until the gang's lease has ended."""
    until_begun(bench)
    while bench.gate("g", "x")[0] != Gate.CLOSED:
        bench.wait()


def test_no_card_of_a_gang_is_given_away_before_all_have_drained(is_ahead: bool) -> None:
    bench = gang(is_ahead, "x", "y")
    until_closed(bench)
    bench.drain(0, "y")
    assert bench.open_on("y") == set()
    bench.drain(0, "x")
    assert bench.open_on("x") == {"on-x"}
    assert bench.open_on("y") == {"on-y"}


def test_a_lease_that_ends_inside_a_collective_lets_the_peer_in(is_ahead: bool) -> None:
    """The kernel on x waits for its peer, which has not been launched on y yet."""
    bench = gang(is_ahead, "x", "y")
    until_closed(bench)
    ended = bench.now
    bench.drain(0, "y")
    bench.wait()
    assert bench.now == ended + 20 * MS
    assert bench.open_on("y") == {"g"}
    bench.wait()
    assert bench.now == ended + 25 * MS
    assert bench.open_on("y") == set()
    for card in "xy":
        bench.drain(0, card)
    assert bench.open_on("y") == {"on-y"}
    assert bench.scheduler.cards["x"].n_late == 0


def test_only_peers_that_wait_are_let_in_and_never_later_where_that_helped(is_ahead: bool) -> None:
    """The card whose kernel waits gets no further launch, so that the cards come to an end."""
    bench = gang(is_ahead, "x", "y")
    until_closed(bench)
    bench.drain(0, "y")
    bench.wait()
    assert bench.open_on("y") == {"g"}
    assert bench.open_on("x") == set()
    bench.drain(0, "x")
    bench.wait()
    # The peer launched more than the collective, whose next one the first has not launched yet.
    assert bench.open_on("x") == bench.open_on("y") == set()
    closed = bench.now
    bench.wait()
    assert bench.now == closed + 20 * MS
    assert bench.open_on("x") == {"g"}
    assert bench.open_on("y") == set()


def test_a_gang_that_pauses_and_goes_on_before_it_has_drained_keeps_its_lease(
    is_ahead: bool,
) -> None:
    """Its gates are not left shut for the rest of a lease that it is charged for."""
    bench = gang(is_ahead, "x", "y")
    until_begun(bench)
    lease = bench.scheduler.node.cards["x"].holder
    assert lease is not None
    bench.now += 60 * MS
    for say in (bench.yields, bench.want):
        for card in "xy":
            say(0, card)
    assert bench.open_on("x") == bench.open_on("y") == {"g"}
    assert bench.deadline("g", "x") == bench.deadline("g", "y") == lease.until_ns


def test_a_gang_that_has_work_again_while_its_peer_is_let_in_keeps_its_lease(
    is_ahead: bool,
) -> None:
    bench = gang(is_ahead, "x", "y")
    until_begun(bench)
    lease = bench.scheduler.node.cards["x"].holder
    assert lease is not None
    bench.now += 60 * MS
    for card in "xy":
        bench.yields(0, card)
    bench.wait()
    assert bench.deadline("g", "y") < lease.until_ns
    bench.want(0, "y")
    assert bench.deadline("g", "x") == bench.deadline("g", "y") == lease.until_ns


def test_a_container_that_paused_and_drained_has_no_lease_to_go_on_with(is_ahead: bool) -> None:
    bench = two(is_ahead)
    bench.now += 10 * MS
    bench.yields(0)
    bench.drain(0)
    bench.want(0)
    assert bench.open == {"b"}


def test_a_gang_that_never_drains_is_overtaken_as_ever(is_ahead: bool) -> None:
    bench = gang(is_ahead, "x", "y")
    until_closed(bench)
    ended, n_peeks = bench.now, 0
    while "on-x" not in bench.open_on("x"):
        bench.wait()
        n_peeks += "g" in bench.open_on("x")
        assert bench.now <= ended + 2_010 * MS
    assert n_peeks <= 8
    assert bench.now >= ended + 2_000 * MS
    assert bench.scheduler.cards["x"].n_late == 1


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
