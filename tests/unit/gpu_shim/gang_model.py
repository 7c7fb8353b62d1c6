"""Programs in virtual time, on the real scheduler and fast path: what a gang of two cards makes of
its time, whatever the machine does that runs the test.

A program does what one behind our library does: it launches while its gate is open and its deadline
has not passed, says DRAINED once nothing of it is left on a card, and YIELD where its helper thread
finds the card empty, even if only for a moment.
"""

import ctypes
import random
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, Protocol

from gpu_shim.arbiter.fast_path.handover import Handover
from gpu_shim.arbiter.scheduler.card_slots import CardSlots
from gpu_shim.arbiter.scheduler.scheduler import Scheduler
from gpu_shim.policy.leases import LeaseSettings
from gpu_shim.policy.shares import Claim
from gpu_shim.protocol import wire
from gpu_shim.protocol.wire import Gate, Kind, Message

MS: Final = 1_000_000
#: How finely virtual time goes on, and how long a message is under way.
TICK: Final = MS // 2
#: A helper thread looks so often whether its program has launched.
LOOK: Final = 5 * MS
BEGIN: Final = 1000 * MS


class Program(Protocol):
    """What runs in a container: it is called at every tick, after all gates were set."""

    def tick(self, now_ns: int) -> None:
        """Launch, wait, and tell."""


@dataclass(slots=True)
class Gates:
    """A container of one process, as its library sees it."""

    machine: "Machine"
    name: str
    cards: str
    page: "ctypes.Array[ctypes.c_char]"
    connection: int = -1
    is_wanting: dict[str, bool] = field(default_factory=dict)
    drained: dict[str, int] = field(default_factory=dict)

    def look(self, card: str) -> tuple[bool, int]:
        """Whether a launch may pass now; the gate's generation."""
        at = wire.GRANTS_HEAD.size + self.cards.index(card) * wire.GRANT.size
        state, generation, deadline = wire.GRANT.unpack_from(self.page, at)
        is_open = state == Gate.OPEN or (state == Gate.LEASED and self.machine.now < deadline)
        return is_open, generation if state == Gate.CLOSED else 0

    def want(self, card: str, is_wanting: bool) -> None:
        """Say WANT or YIELD if that is new; of a launch that may pass the helper thread tells."""
        if self.is_wanting.get(card, False) != is_wanting:
            self.is_wanting[card] = is_wanting
            wait_ns = LOOK if is_wanting and self.look(card)[0] else TICK
            self.say(Kind.WANT if is_wanting else Kind.YIELD, card, 0, wait_ns)

    def drain(self, card: str) -> None:
        """Nothing is left on the card: say so once for each closing."""
        generation = self.look(card)[1]
        if generation and self.drained.get(card) != generation:
            self.drained[card] = generation
            self.say(Kind.DRAINED, card, generation)

    def say(self, kind: Kind, card: str, value: int = 0, wait_ns: int = TICK) -> None:
        """Send a message after so long."""
        data = Message(kind, self.cards.index(card), value).encode()
        self.machine.messages.append((self.machine.now + wait_ns, self.connection, data))


class Machine:
    """Cards, an arbiter without I/O, and programs."""

    def __init__(self) -> None:
        self.fast_path = Handover()
        self.slots = CardSlots(self.fast_path)
        self.scheduler = Scheduler(self.slots, LeaseSettings())
        self.now = BEGIN
        self.programs: list[Program] = []
        #: When they arrive, from which connection, and what they say.
        self.messages: list[tuple[int, int, bytes]] = []

    def container(self, name: str, cards: str) -> Gates:
        """A container that is due one half of each of its cards, and may have all of them."""
        page = (ctypes.c_char * wire.GRANTS_SIZE)()
        gates = Gates(self, name, cards, page)
        claim = Claim(name, Fraction(1, 2), Fraction(1))
        assert self.scheduler.admit(claim, tuple(cards), self.now) == ""
        slot = self.slots.add(name, ctypes.addressof(page), tuple(cards))
        gates.connection = self.fast_path.add_connection(slot)
        return gates

    def decide(self) -> None:
        """What the arbiter does with every event."""
        events = self.fast_path.begin_decision(self.now)
        self.scheduler.hear(events)
        self.scheduler.settle(self.now)
        self.scheduler.plan_ahead(self.now)
        self.fast_path.end_decision(self.now)

    def run(self, seconds: int) -> None:
        """Let so much virtual time go by."""
        end = self.now + seconds * 1000 * MS
        while self.now < end:
            self.now += TICK
            self._deliver()
            for each in self.programs:
                each.tick(self.now)

    def _deliver(self) -> None:
        due = [each for each in self.messages if each[0] <= self.now]
        self.messages = [each for each in self.messages if each[0] > self.now]
        for _, connection, data in due:
            assert self.fast_path.receive(connection, data, self.now)
        self.fast_path.advance(self.now)
        next_ns = self.scheduler.next_ns()
        if due or (next_ns and next_ns <= self.now) or not self.fast_path.next_ns():
            self.decide()


@dataclass(slots=True)
class Busy:
    """Kernels of a millisecond on one card, for ever."""

    gates: Gates
    card: str
    ends_ns: int = 0

    def tick(self, now_ns: int) -> None:
        if now_ns < self.ends_ns:
            return
        self.gates.want(self.card, True)
        if self.gates.look(self.card)[0]:
            self.ends_ns = now_ns + MS
        else:
            self.gates.drain(self.card)


@dataclass(slots=True)
class Rank:
    """One card's part of a gang: computes, then meets its peer; `meets_ns`: since when it waits."""

    card: str
    computes_until_ns: int = 0
    is_meet_launched: bool = False
    meets_ns: int = 0
    ends_ns: int = 0
    rests_until_ns: int = 0

    @property
    def is_empty(self) -> bool:
        return not self.computes_until_ns


@dataclass(slots=True)
class Gang:
    """Steps of `compute_ns` and a collective of `meet_ns`, which ends on both cards at once.

    After a step each rank rests up to `rest_ns` (the host), and in `idle_percent` of these rests
    the helper thread finds the cards empty. `split_percent` of the collectives are launched only
    when the computing has ended, so that a lease may end between the two.
    """

    gates: Gates
    rng: random.Random
    compute_ns: int = 20 * MS
    meet_ns: int = MS
    rest_ns: int = 0
    idle_percent: int = 0
    split_percent: int = 0
    n_steps: int = 0
    ranks: list[Rank] = field(init=False)

    def __post_init__(self) -> None:
        self.ranks = [Rank(card) for card in self.gates.cards]

    def tick(self, now_ns: int) -> None:
        self._meet(now_ns)
        for rank in self.ranks:
            self._launch(rank, now_ns)
        for rank in self.ranks:
            if rank.is_empty:
                self.gates.drain(rank.card)

    def _launch(self, rank: Rank, now_ns: int) -> None:
        if now_ns < rank.rests_until_ns or rank.is_meet_launched:
            return
        self.gates.want(rank.card, True)
        is_open = self.gates.look(rank.card)[0]
        if not rank.computes_until_ns and is_open:
            rank.computes_until_ns = now_ns + self.compute_ns
            rank.is_meet_launched = self.rng.randrange(100) >= self.split_percent
        elif rank.computes_until_ns and now_ns >= rank.computes_until_ns:
            if is_open:
                rank.is_meet_launched = True
            else:
                # All that it launched has ended: the helper says so, though the step has not.
                self.gates.drain(rank.card)

    def _meet(self, now_ns: int) -> None:
        """The collective begins when it runs on every card."""
        if any(not each.is_meet_launched or now_ns < each.computes_until_ns for each in self.ranks):
            return
        for each in self.ranks:
            each.ends_ns = each.ends_ns or now_ns + self.meet_ns
        if now_ns < max(each.ends_ns for each in self.ranks):
            return
        self.n_steps += 1
        is_seen = self.rng.randrange(100) < self.idle_percent
        for each in self.ranks:
            rests_ns = self.rng.randrange(self.rest_ns // TICK + 1) * TICK
            self.ranks[self.ranks.index(each)] = Rank(each.card, rests_until_ns=now_ns + rests_ns)
            if is_seen:
                self.gates.want(each.card, False)
