"""Decides which container's gate is open on each card. No I/O and no clock: time is passed in.

One container at a time holds a card. Its lease ends in two steps: its gate closes, and once all its
processes that ever used the card have drained, the next lease begins. A container that goes idle
while no other wants the card is parked: its gate stays open until another container wants the card.

Where possible, the next turn is planned ahead (`plan_ahead`). The fast path carries the plan out on
time; `_handed_over` then charges the accounts with what happened.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from gpu_shim.arbiter.fast_path.events import Events, Handover
from gpu_shim.arbiter.scheduler.card_slots import CardSlots, SlotState
from gpu_shim.arbiter.scheduler.gate_observer import GateObserver
from gpu_shim.policy.foresight import Turn, foresee
from gpu_shim.policy.gangs import Node
from gpu_shim.policy.leases import IDLE, LeaseSettings
from gpu_shim.policy.shares import Claim
from gpu_shim.protocol.wire import Gate

#: A container that has not drained by then shares the card with the next one, and is charged until
#: it has drained.
DRAIN_NS: Final = 2_000_000_000
#: A lease of several cards may end within a collective: one card's kernel waits for its peer, which
#: waits at another card's gate. If cards have not drained after this time, the gates of the drained
#: cards (if none has drained, of all) open once more for `PEEK_NS`, enough for the peer to launch.
#: After a success the next collective gets the same; otherwise the interval doubles each time.
SPLIT_NS: Final = 20_000_000
PEEK_NS: Final = 5_000_000


@dataclass(slots=True)
class CardRecord:
    """The scheduler's own record of a card: the parked container, the turn that the fast path is to
    carry out, and how often a container did not drain in time. `ended_ns` is when a lease ended
    that has not drained; `peek_ns` (0: not) is until when its gates are open once more."""

    parked: str = IDLE
    turn: Turn | None = None
    n_late: int = 0
    ended_ns: int = 0
    peek_ns: int = 0

    def settled(self) -> None:
        """Record that the lease has drained, or continues."""
        self.ended_ns = self.peek_ns = 0


@dataclass(slots=True)
class Scheduler:
    """All cards of a node."""

    slots: CardSlots
    settings: LeaseSettings = field(default_factory=LeaseSettings)
    drain_ns: int = DRAIN_NS
    observer: GateObserver | None = None
    node: Node = field(init=False)
    cards: dict[str, CardRecord] = field(default_factory=dict)
    #: Containers in which every process is stopped: they count as idle, and are charged nothing.
    stopped: set[str] = field(default_factory=set)
    #: Cards whose plan is void because their state has changed.
    changed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.node = Node(self.settings)

    # -- containers and their processes --------------------------------------------------------

    def admit(self, claim: Claim, cards: tuple[str, ...], now_ns: int) -> str:
        """Add a container or change its shares; returns the reason if it does not fit."""
        for card in cards:
            self.cards.setdefault(card, CardRecord())
        why = self.node.admit(claim, cards, now_ns)
        self._change(cards)
        self.settle(now_ns)
        return why

    def remove(self, container: str, now_ns: int) -> None:
        """Remove a container, also from its slot."""
        cards = self.node.cards_of.get(container, ())
        self.stopped.discard(container)
        self.slots.remove(container)
        self.node.remove(container, now_ns)
        for card in cards:
            record = self.cards[card]
            if record.parked == container:
                record.parked = IDLE
            if self.node.cards[card].holder is None:
                record.settled()
        if self.observer is not None:
            self.observer.forget(container)
        self._change(cards)
        self.settle(now_ns)

    def hear(self, events: Events) -> None:
        """Account for the fast path's hand-overs and the processes' messages."""
        for handover in events.handovers:
            self._handed_over(handover)
        for slot in events.containers:
            container = self.slots.name(slot)
            if container in self.node.cards_of:
                self._update(container, events.now_ns)

    def is_suspect(self, container: str) -> bool:
        """Whether `set_stopped` is due: the container has not drained in time, or was stopped."""
        cards = [self.node.cards[card] for card in self.node.cards_of.get(container, ())]
        is_late = any(card.tenants[container].is_late for card in cards)
        return is_late or container in self.stopped

    def set_stopped(self, container: str, is_stopped: bool, now_ns: int) -> None:
        """Record whether all processes of a container are stopped, by a signal or a debugger."""
        if is_stopped:
            self.stopped.add(container)
        else:
            self.stopped.discard(container)
        self._update(container, now_ns)

    def _update(self, container: str, now_ns: int) -> None:
        """Update the accounts with what the container's processes want."""
        is_stopped = container in self.stopped
        is_busy = self.slots.is_wanted(container) and not is_stopped
        cards = self.node.cards_of[container]
        for card in cards:
            tenant = self.node.cards[card].tenants[container]
            if tenant.is_late and (is_stopped or self.slots.is_drained(container, card)):
                self.node.cards[card].set_late(container, False, now_ns)
        if any(self.node.cards[card].tenants[container].is_busy != is_busy for card in cards):
            self.node.set_busy(container, is_busy, now_ns)
            self._change(cards)
            if is_busy:
                self.node.take_back(container, now_ns)
        if self.observer is not None:
            for card in cards:
                self.observer.demand(container, card, is_busy, now_ns)
        self.settle(now_ns)

    def _change(self, cards: Iterable[str]) -> None:
        """Void the plans of these cards; with gangs, of all, since a gang ties cards together."""
        has_gangs = any(len(each) > 1 for each in self.node.cards_of.values())
        self.changed.update(self.cards if has_gangs else cards)

    # -- gates ---------------------------------------------------------------------------------

    def settle(self, now_ns: int) -> None:
        """Bring every card to its due state."""
        for card in self.cards:
            if card in self.node.cards:
                self._settle(card, now_ns)

    def next_ns(self) -> int:
        """When `settle` must be called again even without an event; 0: never."""
        moments = list[int]()
        for name, card in self.node.cards.items():
            record, closed_ns = self.cards[name], self.slots.state(name).closed_ns
            if record.peek_ns:
                moments.append(record.peek_ns)
            elif closed_ns:
                moments.append(self._give_up_ns(name, closed_ns))
            elif card.holder is not None and self.cards[name].turn is None:
                moments.append(card.holder.until_ns)
        return min(moments, default=0)

    # -- plans ---------------------------------------------------------------------------------

    def plan_ahead(self, now_ns: int) -> None:
        """Plan the next turn in the fast path on every card that has changed."""
        for card in list(self.changed):
            self.cards[card].turn = turn = self._foresee(card, now_ns)
            self.slots.plan(card, turn)
        self.changed.clear()

    def _foresee(self, card: str, now_ns: int) -> Turn | None:
        state = self.slots.state(card)
        if card in self.node.cards and (state.closed_ns or state.gate == Gate.LEASED):
            return foresee(self.node, card, now_ns, bool(state.closed_ns))
        return None

    def _handed_over(self, done: Handover) -> None:
        """The fast path closed the holder's gate, or opened the successor's, or both."""
        card = self.slots.card(done.card)
        turn, account = self.cards[card].turn, self.node.cards[card]
        assert turn is not None, "nothing was planned"
        self._change((card,))
        if done.closed_ns:
            self._observe(turn.holder, card, Gate.CLOSED, done.closed_ns)
        if not done.opened_ns:
            return
        assert turn.terms is not None, "no successor was planned"
        if not turn.is_renewal:
            account.drained(turn.holder, done.drain_ns)
        self.node.end(card, done.opened_ns)
        account.begin(turn.terms, done.opened_ns)
        self._observe(turn.terms.name, card, Gate.LEASED, done.opened_ns)

    # -- one card ------------------------------------------------------------------------------

    def _settle(self, card: str, now_ns: int) -> None:
        account, record = self.node.cards[card], self.cards[card]
        if self._resume(card, now_ns) or now_ns < record.peek_ns:
            return
        if record.peek_ns:
            self._end_peek(self.slots.state(card).holder, now_ns)
        if not self._is_clear(card, now_ns):
            return
        holder = account.holder
        if holder is not None and holder.name != IDLE:
            tenant = account.tenants[holder.name]
            if tenant.is_busy and now_ns < holder.until_ns:
                self._tighten(card, now_ns)
                return
            if self.cards[card].turn is not None and card not in self.changed:
                return
            if not self._renew(card, now_ns):
                self._release(card, now_ns)
            return
        self._begin(card, now_ns)

    def _resume(self, card: str, now_ns: int) -> bool:
        """Let a paused container with work continue its lease, if its cards have not drained."""
        name = self.slots.state(card).holder
        cards = self.node.cards_of.get(name, ())
        if card not in cards or not all(self._is_paused(each, name, now_ns) for each in cards):
            return False
        for each in cards:
            holder = self.node.cards[each].holder
            assert holder is not None
            self.cards[each].settled()
            self._set(each, name, Gate.LEASED, holder.until_ns, now_ns)
        return True

    def _is_paused(self, card: str, name: str, now_ns: int) -> bool:
        """Whether a busy container's lease was ended early and has not drained."""
        account, state = self.node.cards[card], self.slots.state(card)
        holder = account.holder
        if holder is None or holder.name != name or state.holder != name:
            return False
        is_ended = bool(state.closed_ns or self.cards[card].ended_ns)
        return is_ended and account.tenants[name].is_busy and now_ns < holder.until_ns

    def _is_clear(self, card: str, now_ns: int) -> bool:
        """Whether no work of a closed lease is left on the card; if so, ends that lease."""
        state, holder = self.slots.state(card), self.node.cards[card].holder
        if not state.closed_ns:
            return True
        if now_ns < self.cards[card].peek_ns:
            return False
        n_awaited, record = self._n_awaited(card, state), self.cards[card]
        if n_awaited and now_ns < self._give_up_ns(card, state.closed_ns):
            return False
        if n_awaited and now_ns < (record.ended_ns or state.closed_ns) + self.drain_ns:
            self._peek(state.holder, now_ns)
            return False
        record.n_late += bool(n_awaited)
        record.settled()
        if holder is not None and holder.name == state.holder:
            self.node.cards[card].drained(holder.name, now_ns - state.closed_ns)
            self.node.end(card, now_ns)
            if state.n_awaited:
                self.node.cards[card].set_late(holder.name, True, now_ns)
        self.slots.settle(card)
        self._change((card,))
        return True

    def _tighten(self, card: str, now_ns: int) -> None:
        """Put a deadline on an open gate once other containers want the card."""
        account = self.node.cards[card]
        assert account.holder is not None
        others = [t for name, t in account.tenants.items() if name != account.holder.name]
        if self._is_open(card, account.holder.name) and any(each.is_busy for each in others):
            self._set(card, account.holder.name, Gate.LEASED, account.holder.until_ns, now_ns)

    def _renew(self, card: str, now_ns: int) -> bool:
        """Give the holder of one card another lease if it is its turn again."""
        account = self.node.cards[card]
        assert account.holder is not None
        name = account.holder.name
        if not account.tenants[name].is_busy:
            return False
        cards = self.node.cards_of[name]
        if any(not self._is_held(each, name, now_ns) for each in cards):
            return False
        for each in cards:
            self.node.end(each, now_ns)
        self._grant(self.node.pick(card, now_ns), now_ns)
        return True

    def _is_held(self, card: str, name: str, now_ns: int) -> bool:
        """Whether the container has the card, its gate is open, and its turn would be next."""
        holder, state = self.node.cards[card].holder, self.slots.state(card)
        is_open = state.holder == name and state.gate != Gate.CLOSED
        is_its = holder is not None and holder.name == name and is_open
        return is_its and self.node.turn(card, now_ns) == name

    # -- several cards -------------------------------------------------------------------------

    def _closing(self, container: str) -> list[str]:
        """The container's cards whose lease is over and whose gate is closed."""
        cards = self.node.cards_of.get(container, ())
        states = {card: self.slots.state(card) for card in cards}
        return [card for card, at in states.items() if at.closed_ns and at.holder == container]

    def _n_awaited(self, card: str, state: SlotState) -> int:
        """Processes that may run work on the card, or on another card of the same lease."""
        if len(self.node.cards_of.get(state.holder, ())) < 2:
            return state.n_awaited
        return sum(self.slots.state(each).n_awaited for each in self._closing(state.holder))

    def _give_up_ns(self, card: str, closed_ns: int) -> int:
        """Until when a closed gate waits for its processes to drain, before it opens once more."""
        ended_ns, name = self.cards[card].ended_ns or closed_ns, self.slots.state(card).holder
        if len(self.node.cards_of.get(name, ())) < 2:
            return ended_ns + self.drain_ns
        states = [self.slots.state(each) for each in self._closing(name)]
        last_ns = max(state.closed_ns for state in states)
        left = [state for state in states if state.n_awaited]
        is_stuck = len(left) == len(states) or any(state.closed_ns < last_ns for state in left)
        wait_ns = max(SPLIT_NS, last_ns - ended_ns) if is_stuck else SPLIT_NS
        return min(last_ns + wait_ns, ended_ns + self.drain_ns)

    def _peek(self, container: str, now_ns: int) -> None:
        """Open gates once more, for peers of a collective that runs on another card."""
        closing = self._closing(container)
        drained = [card for card in closing if not self.slots.state(card).n_awaited]
        for card in closing:
            record = self.cards[card]
            record.ended_ns = record.ended_ns or self._closed_ns(card)
            record.peek_ns = now_ns + PEEK_NS
        for card in drained or closing:
            self._set(card, container, Gate.LEASED, now_ns + PEEK_NS, now_ns)

    def _end_peek(self, container: str, now_ns: int) -> None:
        """Close the gates that were opened once more."""
        for card in self.node.cards_of.get(container, ()):
            record = self.cards[card]
            if record.peek_ns and not self._closed_ns(card):
                self._set(card, container, Gate.CLOSED, 0, now_ns)
            record.peek_ns = 0

    def _release(self, card: str, now_ns: int) -> None:
        """End the holder's lease: park it if no container wants the card, else close its gate."""
        account = self.node.cards[card]
        assert account.holder is not None
        name = account.holder.name
        is_wanted = any(tenant.is_busy for tenant in account.tenants.values())
        if self._is_open(card, name) and not is_wanted:
            self.cards[card].parked = name
            self.node.end(card, now_ns)
            return
        for each in self.node.cards_of[name]:
            held = self.node.cards[each].holder
            if held is not None and held.name == name and not self._closed_ns(each):
                self._set(each, name, Gate.CLOSED, 0, now_ns)
        for each in self.node.cards_of[name]:
            state = self.slots.state(each)
            if state.closed_ns and not state.n_awaited:
                self._settle(each, now_ns)

    def _begin(self, card: str, now_ns: int) -> None:
        """Give the free card to the next container, once a parked one has drained."""
        account = self.node.cards[card]
        name = self.node.turn(card, now_ns)
        if name == IDLE:
            if account.holder is None or now_ns >= account.holder.until_ns:
                self.node.end(card, now_ns)
                self.node.cards[card].grant(IDLE, now_ns)
            return
        is_clear = True
        for each in self.node.cards_of[name]:
            parked = self.cards[each].parked
            if parked not in (IDLE, name):
                self._set(each, parked, Gate.CLOSED, 0, now_ns)
                self.cards[each].parked = IDLE
            is_clear = self._is_clear(each, now_ns) and is_clear
        if is_clear:
            self.node.end(card, now_ns)
            self._grant(self.node.pick(card, now_ns), now_ns)

    def _grant(self, cards: Iterable[str], now_ns: int) -> None:
        for card in cards:
            grant = self.node.cards[card].holder
            assert grant is not None
            if grant.name == IDLE:
                continue
            self.cards[card].parked = IDLE
            if grant.is_contended:
                self._set(card, grant.name, Gate.LEASED, grant.until_ns, now_ns)
            elif not self._is_open(card, grant.name):
                self._set(card, grant.name, Gate.OPEN, 0, now_ns)

    def _is_open(self, card: str, container: str) -> bool:
        """Whether the container's gate is open without a deadline."""
        state = self.slots.state(card)
        return state.holder == container and state.gate == Gate.OPEN

    def _closed_ns(self, card: str) -> int:
        return self.slots.state(card).closed_ns

    def _set(self, card: str, container: str, gate: Gate, deadline_ns: int, now_ns: int) -> None:
        self._change((card,))
        self.slots.set_gate(container, card, gate, deadline_ns, now_ns)
        self._observe(container, card, gate, now_ns)

    def _observe(self, container: str, card: str, gate: Gate, now_ns: int) -> None:
        if self.observer is None:
            return
        if gate == Gate.CLOSED:
            self.observer.gate_closed(container, card)
            is_busy = self.node.cards[card].tenants[container].is_busy
            self.observer.demand(container, card, is_busy, now_ns)
        else:
            self.observer.gate_opened(container, card, now_ns)
