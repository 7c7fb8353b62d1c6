"""The scheduler on the real fast path, in virtual time."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction

from gpu_shim.arbiter.fast_path.handover import Handover
from gpu_shim.arbiter.scheduler.card_slots import CardSlots
from gpu_shim.arbiter.scheduler.scheduler import Scheduler
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


def two(is_ahead: bool, a: int = 500, b: int = 500) -> Bench:
    """Two containers of one card, both with work."""
    bench = Bench(("a", a, 1000), ("b", b, 1000), is_ahead=is_ahead)
    bench.want(0)
    bench.want(1)
    return bench
