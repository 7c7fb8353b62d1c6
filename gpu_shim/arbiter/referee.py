"""Opens and closes gates: what processes say comes in, settings of gates go out. No I/O, no clock.

A card is held by one container at a time. Its lease ends in two steps: the gate closes, and when
every process of it that ever used the card has drained, the next one begins. A container that has
gone quiet while nobody else wants the card is parked: its gate stays open until somebody does.

Who opens gates may be told ahead what comes next (`foresee`), do it at the right moment by itself,
and tell afterwards (`closed`, `passed`); the accounts are then what they would have been.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, Protocol

from gpu_shim.arbiter.wire import Gate
from gpu_shim.policy.foresight import Turn, foresee
from gpu_shim.policy.gangs import Node
from gpu_shim.policy.leases import NOBODY, Settings
from gpu_shim.policy.shares import Claim

#: A container that has not drained by then shares the card with the next; it is charged all of it.
DRAIN_NS: Final = 2_000_000_000


class Gates(Protocol):
    """Where settings go: the grant pages."""

    def set_gate(self, container: str, card: str, gate: Gate, deadline_ns: int) -> int:
        """Set one gate; its generation then."""


@dataclass(slots=True)
class Process:
    """One connection: the cards it wants now, and those it ever used."""

    container: str
    wanted: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Closing:
    """A gate that has been closed, and the processes that have not drained yet."""

    container: str
    generation: int
    waiting: set[int]
    until_ns: int


@dataclass(slots=True)
class Desk:
    """One card's state beyond the policy's. `turn` is what was told ahead."""

    gate: Gate = Gate.CLOSED
    parked: str = NOBODY
    closing: Closing | None = None
    turn: Turn | None = None
    n_late: int = 0


@dataclass(slots=True)
class Referee:
    """All cards of a node. Every call passes the time."""

    gates: Gates
    settings: Settings = field(default_factory=Settings)
    drain_ns: int = DRAIN_NS
    node: Node = field(init=False)
    processes: dict[int, Process] = field(default_factory=dict)
    desks: dict[str, Desk] = field(default_factory=dict)
    #: Cards on which something has changed since it was last foreseen what comes.
    changed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.node = Node(self.settings)

    # -- containers and processes --------------------------------------------------------------

    def admit(self, claim: Claim, cards: tuple[str, ...], now_ns: int) -> str:
        """Take a container in, or change its shares; why not, where it does not fit."""
        for card in cards:
            self.desks.setdefault(card, Desk())
        why = self.node.admit(claim, cards, now_ns)
        self._change(cards)
        self.settle(now_ns)
        return why

    def remove(self, container: str, now_ns: int) -> None:
        """Forget a container that is gone, and its gates with it."""
        cards = self.node.cards_of.get(container, ())
        for card in cards:
            holder, desk = self.node.cards[card].holder, self.desks[card]
            if container in (desk.parked, holder.name if holder is not None else NOBODY):
                desk.gate = Gate.CLOSED
        self.node.remove(container, now_ns)
        for key in [key for key, each in self.processes.items() if each.container == container]:
            del self.processes[key]
        for card in cards:
            desk = self.desks[card]
            if desk.parked == container:
                desk.parked = NOBODY
            if desk.closing is not None and desk.closing.container == container:
                desk.closing = None
        self._change(cards)
        self.settle(now_ns)

    def join(self, key: int, container: str) -> None:
        """A process of the container is there."""
        self.processes[key] = Process(container)

    def leave(self, key: int, now_ns: int) -> None:
        """A process is gone, and with it whatever it ran."""
        process = self.processes.pop(key, None)
        if process is None:
            return
        for desk in self.desks.values():
            if desk.closing is not None:
                desk.closing.waiting.discard(key)
        self._update(process.container, now_ns)

    def want(self, key: int, card: str, now_ns: int) -> None:
        """The process has something to launch."""
        process = self.processes[key]
        process.wanted.add(card)
        process.used.add(card)
        self._update(process.container, now_ns)

    def yielded(self, key: int, card: str, now_ns: int) -> None:
        """The process has nothing queued or running."""
        self.processes[key].wanted.discard(card)
        self._update(self.processes[key].container, now_ns)

    def drained(self, key: int, card: str, generation: int, now_ns: int) -> None:
        """What the process launched before the gate closed has ended."""
        closing = self.desks[card].closing
        if closing is not None and closing.generation == generation:
            closing.waiting.discard(key)
            self.settle(now_ns)

    def _update(self, container: str, now_ns: int) -> None:
        is_busy = any(p.wanted for p in self.processes.values() if p.container == container)
        cards = self.node.cards_of.get(container, ())
        if any(self.node.cards[card].tenants[container].is_busy != is_busy for card in cards):
            self.node.set_busy(container, is_busy, now_ns)
            self._change(cards)
        self.settle(now_ns)

    def _change(self, cards: Iterable[str]) -> None:
        """What was foreseen on these is void; with gangs, what one gets depends on all cards."""
        has_gangs = any(len(each) > 1 for each in self.node.cards_of.values())
        self.changed.update(self.desks if has_gangs else cards)

    # -- gates ---------------------------------------------------------------------------------

    def settle(self, now_ns: int) -> None:
        """Bring every card to where it should be now."""
        for card in self.desks:
            if card in self.node.cards:
                self._settle(card, now_ns)

    def next_ns(self) -> int:
        """When `settle` must be called again, whatever comes in; 0: never."""
        moments = [desk.closing.until_ns for desk in self.desks.values() if desk.closing]
        for name, card in self.node.cards.items():
            is_told = self.desks[name].turn is not None
            if card.holder is not None and not self.desks[name].closing and not is_told:
                moments.append(card.holder.until_ns)
        return min(moments, default=0)

    # -- what is told ahead --------------------------------------------------------------------

    def foresee(self, card: str, now_ns: int) -> Turn | None:
        """What is to happen on the card next; `settle` then leaves that to who was told."""
        desk = self.desks[card]
        desk.turn = None
        self.changed.discard(card)
        if desk.closing is not None or desk.gate == Gate.LEASED:
            desk.turn = foresee(self.node, card, now_ns, desk.closing is not None)
        return desk.turn

    def closed(self, card: str, now_ns: int) -> None:
        """The holder's gate was closed at its time."""
        turn = self.desks[card].turn
        assert turn is not None, "nothing was told ahead"
        self._close(card, turn.holder, now_ns)

    def passed(self, card: str, now_ns: int) -> None:
        """The successor's gate was opened, or the holder's own anew."""
        desk, turn = self.desks[card], self.desks[card].turn
        assert turn is not None, "nothing was told ahead"
        assert turn.terms is not None, "nobody was told ahead"
        if desk.closing is not None:
            desk.closing.waiting.clear()
            self._is_clear(card, now_ns)
        self.node.end(card, now_ns)
        self.node.cards[card].begin(turn.terms, now_ns)
        self._change((card,))
        self._grant((card,))

    def _settle(self, card: str, now_ns: int) -> None:
        account = self.node.cards[card]
        if not self._is_clear(card, now_ns):
            return
        holder = account.holder
        if holder is not None and holder.name != NOBODY:
            tenant = account.tenants[holder.name]
            if tenant.is_busy and now_ns < holder.until_ns:
                self._tighten(card, now_ns)
                return
            if self.desks[card].turn is not None and card not in self.changed:
                return
            if not self._renew(card, now_ns):
                self._release(card, now_ns)
            return
        self._begin(card, now_ns)

    def _is_clear(self, card: str, now_ns: int) -> bool:
        """Whether nothing of a lease that was closed is left on the card; ends it where so."""
        desk, holder = self.desks[card], self.node.cards[card].holder
        if desk.closing is None:
            return True
        if desk.closing.waiting and now_ns < desk.closing.until_ns:
            return False
        desk.n_late += bool(desk.closing.waiting)
        if holder is not None and holder.name == desk.closing.container:
            took_ns = now_ns - desk.closing.until_ns + self.drain_ns
            self.node.cards[card].drained(holder.name, took_ns)
            self.node.end(card, now_ns)
        desk.closing = None
        self._change((card,))
        return True

    def _tighten(self, card: str, now_ns: int) -> None:
        """Put a deadline on an open gate once others want the card."""
        desk, account = self.desks[card], self.node.cards[card]
        assert account.holder is not None
        others = [t for name, t in account.tenants.items() if name != account.holder.name]
        if desk.gate == Gate.OPEN and any(tenant.is_busy for tenant in others):
            self._set(card, account.holder.name, Gate.LEASED, account.holder.until_ns)

    def _renew(self, card: str, now_ns: int) -> bool:
        """Give the holder of one card another lease, where it is its turn again."""
        account = self.node.cards[card]
        assert account.holder is not None
        name = account.holder.name
        if len(self.node.cards_of[name]) > 1 or not account.tenants[name].is_busy:
            return False
        if self.node.turn(card, now_ns) != name:
            return False
        self.node.end(card, now_ns)
        self._grant(self.node.pick(card, now_ns))
        return True

    def _release(self, card: str, now_ns: int) -> None:
        """End the holder's lease: park it where nobody else wants the card, else close."""
        desk, account = self.desks[card], self.node.cards[card]
        assert account.holder is not None
        name = account.holder.name
        is_wanted = any(tenant.is_busy for tenant in account.tenants.values())
        if desk.gate == Gate.OPEN and not is_wanted:
            desk.parked = name
            self.node.end(card, now_ns)
            return
        for each in self.node.cards_of[name]:
            held = self.node.cards[each].holder
            if held is not None and held.name == name and self.desks[each].closing is None:
                self._close(each, name, now_ns)
        for each in self.node.cards_of[name]:
            if (closing := self.desks[each].closing) is not None and not closing.waiting:
                self._settle(each, now_ns)

    def _begin(self, card: str, now_ns: int) -> None:
        """Give the free card to whose turn it is, once who is parked on it has left."""
        account = self.node.cards[card]
        name = self.node.turn(card, now_ns)
        if name == NOBODY:
            if account.holder is None or now_ns >= account.holder.until_ns:
                self.node.end(card, now_ns)
                self.node.cards[card].grant(NOBODY, now_ns)
            return
        cleared = True
        for each in self.node.cards_of[name]:
            parked = self.desks[each].parked
            if parked not in (NOBODY, name):
                self._close(each, parked, now_ns)
                self.desks[each].parked = NOBODY
            cleared = self._is_clear(each, now_ns) and cleared
        if cleared:
            self.node.end(card, now_ns)
            self._grant(self.node.pick(card, now_ns))

    def _close(self, card: str, container: str, now_ns: int) -> None:
        generation = self._set(card, container, Gate.CLOSED, 0)
        waiting = {
            key
            for key, process in self.processes.items()
            if process.container == container and card in process.used
        }
        until_ns = now_ns + self.drain_ns
        self.desks[card].closing = Closing(container, generation, waiting, until_ns)

    def _grant(self, cards: Iterable[str]) -> None:
        for card in cards:
            grant = self.node.cards[card].holder
            assert grant is not None
            if grant.name == NOBODY:
                continue
            self.desks[card].parked = NOBODY
            if grant.is_contended:
                self._set(card, grant.name, Gate.LEASED, grant.until_ns)
            elif self.desks[card].gate != Gate.OPEN:
                self._set(card, grant.name, Gate.OPEN, 0)

    def _set(self, card: str, container: str, gate: Gate, deadline_ns: int) -> int:
        self.desks[card].gate = gate
        self._change((card,))
        return self.gates.set_gate(container, card, gate, deadline_ns)


def claim_of(name: str, request_milli: int, limit_milli: int) -> Claim:
    """A container's claim as the ledger's row says it."""
    return Claim(name, Fraction(request_milli, 1000), Fraction(limit_milli, 1000))
