"""The scheduler's view of the fast path: containers by name and cards by UUID instead of slots."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from gpu_shim.arbiter.fast_path.events import Plan
from gpu_shim.arbiter.fast_path.handover import Handover
from gpu_shim.policy.foresight import Turn
from gpu_shim.policy.leases import IDLE
from gpu_shim.protocol.wire import Gate


@dataclass(slots=True, frozen=True)
class SlotState:
    """One card: the gate that was set last, and its container ("" if that is gone).

    While `closed_ns` is not 0, the gate has been closed since then and up to `n_awaited` processes
    may still run work on the card.
    """

    holder: str
    gate: Gate
    closed_ns: int
    n_awaited: int


@dataclass(slots=True)
class CardSlots:
    """Reads and sets the state of cards, which the fast path owns."""

    fast_path: Handover
    _slots: dict[str, int] = field(default_factory=dict)
    _names: dict[int, str] = field(default_factory=dict)
    _cards_of: dict[str, Sequence[str]] = field(default_factory=dict)
    #: By UUID: the card's number in the fast path, its place in `_cards`.
    _numbers: dict[str, int] = field(default_factory=dict)
    _cards: list[str] = field(default_factory=list)

    def number(self, card: str) -> int:
        """The number of a card; a new one gets the next."""
        if card not in self._numbers:
            self._numbers[card] = len(self._cards)
            self._cards.append(card)
        return self._numbers[card]

    def card(self, number: int) -> str:
        """The card with this number."""
        return self._cards[number]

    def add(self, container: str, grants: int, cards: Sequence[str]) -> int:
        """The slot of a new container; `grants` is the address of its grants."""
        slot = self.fast_path.add_container(grants, [self.number(card) for card in cards])
        self._slots[container], self._names[slot] = slot, container
        self._cards_of[container] = cards
        return slot

    def remove(self, container: str) -> None:
        """Remove a container, its connections and gates."""
        if container in self._slots:
            slot = self._slots.pop(container)
            del self._cards_of[container], self._names[slot]
            self.fast_path.remove_container(slot)

    def name(self, slot: int) -> str:
        """The container in a slot; "" if it is gone."""
        return self._names.get(slot, IDLE)

    def state(self, card: str) -> SlotState:
        """The state of a card."""
        state = self.fast_path.card(self.number(card))
        holder = self.name(state.holder)
        return SlotState(holder, Gate(state.gate), state.closed_ns, state.n_awaited)

    def is_wanted(self, container: str) -> bool:
        """Whether a process of the container has work to launch."""
        return self.fast_path.is_wanted(self._slots[container])

    def is_drained(self, container: str, card: str) -> bool:
        """Whether no work of the container's ended leases is left on the card."""
        return not self.fast_path.n_undrained(*self._gate_of(container, card))

    def set_gate(
        self, container: str, card: str, gate: Gate, deadline_ns: int, now_ns: int
    ) -> None:
        """Set one gate of a container."""
        self.fast_path.set_gate(*self._gate_of(container, card), gate, deadline_ns, now_ns)

    def settle(self, card: str) -> None:
        """Stop waiting for the processes of the closed gate."""
        self.fast_path.settle(self.number(card))

    def plan(self, card: str, turn: Turn | None) -> None:
        """Let the fast path carry out this turn; None: nothing."""
        self.fast_path.plan(self.number(card), self._plan_of(card, turn))

    def reset(self) -> None:
        """Drop all plans, and treat no gate as closing."""
        for number in range(len(self._cards)):
            self.fast_path.plan(number, None)
            self.fast_path.settle(number)

    def _plan_of(self, card: str, turn: Turn | None) -> Plan | None:
        if turn is None:
            return None
        close_ns = 0 if self.state(card).closed_ns else turn.close_ns
        if turn.terms is None:
            return Plan(close_ns, turn.latest_ns)
        terms = turn.terms
        run_ns = terms.length_ns - terms.early_ns if terms.is_contended else 0
        successor = self._gate_of(terms.name, card)
        return Plan(close_ns, turn.latest_ns, successor, run_ns, turn.is_renewal)

    def _gate_of(self, container: str, card: str) -> tuple[int, int]:
        """A gate as the fast path knows it: the container's slot, and which of its cards."""
        return self._slots[container], self._cards_of[container].index(card)
