"""The referee: what processes say, and which gates open and close for it."""

from dataclasses import dataclass, field

from gpu_shim.arbiter.referee import Referee, claim_of
from gpu_shim.arbiter.wire import Gate
from gpu_shim.policy.foresight import Turn
from gpu_shim.policy.leases import Settings

MS = 1_000_000
LEASE = 250 * MS


@dataclass
class Page:
    """Gates as they stand, and how often each was set."""

    gates: dict[tuple[str, str], Gate] = field(default_factory=dict)
    generations: dict[tuple[str, str], int] = field(default_factory=dict)

    def set_gate(self, container: str, card: str, gate: Gate, deadline_ns: int) -> int:
        at = (container, card)
        self.gates[at] = gate
        self.generations[at] = self.generations.get(at, 0) + 1
        return self.generations[at]

    def open_on(self, card: str) -> set[str]:
        """Who may launch on a card."""
        return {name for (name, at), gate in self.gates.items() if at == card and gate}


class Bench:
    """A referee with one process in each container, numbered in order."""

    def __init__(self, *containers: tuple[str, int, int], cards: str = "x") -> None:
        self.page = Page()
        self.referee = Referee(self.page, Settings())
        self.now = 0
        for key, (name, request, limit) in enumerate(containers):
            assert self.referee.admit(claim_of(name, request, limit), tuple(cards), 0) == ""
            self.referee.join(key, name)

    def want(self, key: int, card: str = "x") -> None:
        self.referee.want(key, card, self.now)

    def drain(self, key: int, card: str = "x") -> None:
        name = self.referee.processes[key].container
        generation = self.page.generations[name, card]
        self.referee.drained(key, card, generation, self.now)

    def wait(self, ns: int = 0) -> None:
        """Until the referee asks to be called, or for so long."""
        self.now = self.now + ns if ns else self.referee.next_ns()
        self.referee.settle(self.now)

    @property
    def open(self) -> set[str]:
        return self.page.open_on("x")


def test_alone_without_limit_the_gate_is_simply_open() -> None:
    bench = Bench(("a", 500, 1000))
    bench.want(0)
    assert bench.page.gates == {("a", "x"): Gate.OPEN}
    before = dict(bench.page.generations)
    for _ in range(5):
        bench.wait()
    assert bench.page.generations == before


def test_a_newcomer_waits_for_the_lease_to_end_and_the_holder_to_drain() -> None:
    bench = Bench(("a", 500, 1000), ("b", 500, 1000))
    bench.want(0)
    bench.now = 100 * MS
    bench.want(1)
    assert bench.page.gates["a", "x"] == Gate.LEASED
    bench.wait()
    assert bench.now == LEASE
    assert bench.open == set()
    bench.now += 3 * MS
    bench.drain(0)
    assert bench.open == {"b"}


def test_gates_of_two_containers_are_never_open_at_once() -> None:
    bench = Bench(("a", 250, 1000), ("b", 750, 1000))
    bench.want(0)
    bench.want(1)
    for _ in range(200):
        bench.wait()
        assert len(bench.open) <= 1
        for key in (0, 1):
            bench.drain(key)
        assert len(bench.open) == 1
    held = bench.referee.node.cards["x"].tenants
    assert abs(held["a"].held_ns / bench.now - 0.25) < 0.02


def test_who_yields_with_nobody_waiting_is_parked_with_its_gate_open() -> None:
    bench = Bench(("a", 500, 1000), ("b", 500, 1000))
    bench.want(0)
    bench.referee.yielded(0, "x", 10 * MS)
    assert bench.open == {"a"}
    bench.now = 20 * MS
    bench.want(1)
    assert bench.open == set()
    bench.drain(0)
    assert bench.open == {"b"}


def test_who_yields_in_its_lease_hands_over_at_once() -> None:
    bench = Bench(("a", 500, 1000), ("b", 500, 1000))
    bench.want(0)
    bench.want(1)
    bench.now = 10 * MS
    bench.referee.yielded(0, "x", bench.now)
    bench.drain(0)
    assert bench.open == {"b"}
    assert bench.referee.node.cards["x"].tenants["a"].held_ns == 10 * MS


def test_a_process_that_dies_in_its_lease_hands_over_at_once() -> None:
    bench = Bench(("a", 500, 1000), ("b", 500, 1000))
    bench.want(0)
    bench.want(1)
    bench.now = 10 * MS
    bench.referee.leave(0, bench.now)
    assert bench.open == {"b"}


def test_a_process_that_never_used_the_card_is_not_waited_for() -> None:
    bench = Bench(("a", 500, 1000), ("b", 500, 1000))
    bench.referee.join(7, "a")
    bench.want(0)
    bench.want(1)
    bench.wait()
    bench.drain(0)
    assert bench.open == {"b"}


def test_who_does_not_drain_is_overtaken_and_charged() -> None:
    bench = Bench(("a", 500, 1000), ("b", 500, 1000))
    bench.want(0)
    bench.want(1)
    bench.wait()
    bench.wait()
    assert bench.now == LEASE + 2_000 * MS
    assert bench.open == {"b"}
    assert bench.referee.desks["x"].n_late == 1
    assert bench.referee.node.cards["x"].tenants["a"].overrun_ns == 2_000 * MS


def test_a_strict_container_alone_is_closed_for_what_is_not_its_share() -> None:
    bench = Bench(("a", 500, 500))
    bench.want(0)
    assert bench.page.gates["a", "x"] == Gate.LEASED
    bench.wait()
    bench.drain(0)
    assert bench.open == set()
    bench.wait()
    assert bench.open == {"a"}


def test_a_stale_drain_means_nothing() -> None:
    bench = Bench(("a", 500, 1000), ("b", 500, 1000))
    bench.want(0)
    bench.want(1)
    bench.wait()
    bench.referee.drained(0, "x", 0, bench.now)
    assert bench.open == set()


def test_a_gang_is_opened_on_all_its_cards_or_on_none() -> None:
    bench = Bench(("g", 500, 1000), cards="xy")
    for name, card in (("a", "x"), ("b", "y")):
        key = {"a": 1, "b": 2}[name]
        assert bench.referee.admit(claim_of(name, 500, 1000), (card,), 0) == ""
        bench.referee.join(key, name)
    for key, card in ((0, "x"), (0, "y"), (1, "x"), (2, "y")):
        bench.want(key, card)
    held = 0
    for _ in range(100):
        bench.wait()
        for key, card in ((0, "x"), (0, "y"), (1, "x"), (2, "y")):
            bench.drain(key, card)
        on_x, on_y = bench.page.open_on("x"), bench.page.open_on("y")
        assert len(on_x) <= 1
        assert len(on_y) <= 1
        assert ("g" in on_x) == ("g" in on_y)
        held += "g" in on_x
    assert held > 20


def test_a_container_that_is_removed_frees_the_card() -> None:
    bench = Bench(("a", 500, 1000), ("b", 500, 1000))
    bench.want(0)
    bench.want(1)
    bench.referee.remove("a", 10 * MS)
    assert bench.page.gates["b", "x"] == Gate.OPEN


def test_a_container_that_comes_after_one_that_was_alone_has_the_card() -> None:
    """The gate that the first one leaves open is not the second one's."""
    bench = Bench(("a", 500, 1000), ("b", 500, 1000))
    bench.want(0)
    bench.now = 300 * MS
    bench.referee.leave(0, bench.now)
    bench.referee.remove("a", bench.now)
    bench.want(1)
    assert bench.page.gates["b", "x"] == Gate.OPEN


def told(bench: Bench) -> Turn:
    """What comes next on the card, of which whoever opens gates is told."""
    turn = bench.referee.foresee("x", bench.now)
    assert turn is not None
    return turn


def test_turns_that_are_told_ahead_are_charged_like_others() -> None:
    bench = Bench(("a", 250, 1000), ("b", 750, 1000))
    bench.want(0)
    bench.want(1)
    for _ in range(200):
        turn = told(bench)
        bench.now = turn.close_ns
        if not turn.is_renewal:
            bench.referee.closed("x", bench.now)
            assert bench.open == set()
            bench.now += 3 * MS
        bench.referee.passed("x", bench.now)
        assert turn.terms is not None
        assert bench.open == {turn.terms.name}
    held = bench.referee.node.cards["x"].tenants
    assert sum(each.held_ns for each in held.values()) <= bench.now
    assert abs(held["a"].held_ns / bench.now - 0.25) < 0.02


def test_what_was_told_is_left_to_who_was_told() -> None:
    bench = Bench(("a", 500, 1000), ("b", 500, 1000))
    bench.want(0)
    bench.want(1)
    turn = told(bench)
    bench.referee.settle(turn.close_ns + 1)
    assert bench.open == {"a"}
    assert bench.referee.next_ns() == 0


def test_what_was_told_is_void_when_somebody_comes_or_goes() -> None:
    bench = Bench(("a", 500, 1000), ("b", 500, 1000))
    bench.want(0)
    bench.want(1)
    assert told(bench).terms is not None
    bench.now = 10 * MS
    bench.referee.leave(1, bench.now)
    assert bench.referee.changed == {"x"}
    turn = told(bench)
    assert turn.terms is None or turn.terms.name == "a"


def test_who_is_stopped_and_does_not_drain_is_overtaken_as_ever() -> None:
    bench = Bench(("a", 500, 1000), ("b", 500, 1000))
    bench.want(0)
    bench.want(1)
    bench.now = told(bench).close_ns
    bench.referee.closed("x", bench.now)
    told(bench)
    assert bench.referee.next_ns() == bench.now + 2_000 * MS
    bench.wait()
    assert bench.open == {"b"}
    assert bench.referee.desks["x"].n_late == 1


def test_nothing_is_told_of_a_gate_that_is_simply_open() -> None:
    bench = Bench(("a", 500, 1000))
    bench.want(0)
    assert bench.referee.foresee("x", bench.now) is None
