"""The cards of one node, and tenants that need several of them at once.

A collective kernel spins on one card until its peer runs on the other, so a tenant with several
cards gets them together or not at all: one gang lease. A gang that is next on one card waits for
its other cards; until they are free, the card is lent to tenants whose leases end before that. A
waiting gang holds no cards, so overlapping gangs cannot deadlock; the gang that has waited longest
goes first.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from gpu_shim.policy.leases import IDLE, Card, Grant, LeaseSettings
from gpu_shim.policy.shares import Claim

#: A loan below this part of a lease is not worth a hand-over.
LEAST_LOAN: Final = Fraction(1, 10)
#: Rounds of levelling: another gang may use what one gives back; levels only fall, and soon by next
#: to nothing.
LEVELLINGS: Final = 4


@dataclass(slots=True)
class Node:
    """The cards of a node. `waiting` are gangs that are next on a card, the oldest first."""

    settings: LeaseSettings
    cards: dict[str, Card] = field(default_factory=dict)
    cards_of: dict[str, tuple[str, ...]] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)

    def admit(self, claim: Claim, cards: tuple[str, ...], now_ns: int) -> str:
        """Add or change a tenant on all of `cards`; on failure on none, and return the reason."""
        for at, card in enumerate(cards):
            self.cards.setdefault(card, Card(self.settings, now_ns))
            known = self.cards[card].tenants.get(claim.name)
            if why := self.cards[card].admit(claim, now_ns):
                if known is None:
                    for taken in cards[:at]:
                        self.cards[taken].remove(claim.name, now_ns)
                return f"{card}: {why}"
        self.cards_of[claim.name] = cards
        self._level(now_ns)
        return ""

    def remove(self, name: str, now_ns: int) -> None:
        """Remove a tenant from all its cards."""
        for card in self.cards_of.pop(name, ()):
            self.cards[card].remove(name, now_ns)
        if name in self.waiting:
            self.waiting.remove(name)
        self._level(now_ns)

    def set_busy(self, name: str, is_busy: bool, now_ns: int) -> None:
        """Record whether a tenant wants its cards."""
        for card in self.cards_of[name]:
            self.cards[card].set_busy(name, is_busy, now_ns)
        if not is_busy and name in self.waiting:
            self.waiting.remove(name)
        self._level(now_ns)

    def end(self, card: str, now_ns: int) -> None:
        """End the card's lease; its work has drained."""
        self.cards[card].end(now_ns)

    def take_back(self, name: str, now_ns: int) -> None:
        """Cut leases short for a tenant that wants its cards again and is next.

        Only leases of tenants that are a lease ahead: they had the cards while this one paused.
        """
        for card in self.cards_of[name]:
            holder = self.cards[card].holder
            if holder is None or holder.name in (IDLE, name):
                continue
            is_ahead = self.cards[card].is_ahead(holder.name, now_ns)
            if is_ahead and self.turn(card, now_ns) == name:
                for each in self.cards_of[holder.name]:
                    self.cards[each].cut(holder.name, now_ns)

    def turn(self, card: str, now_ns: int) -> str:
        """The next tenant of the card; empty if the card stays idle."""
        return next(iter(self._order(card, now_ns)), IDLE)

    def pick(self, card: str, now_ns: int) -> Mapping[str, Grant]:
        """Grants that begin now: of the free `card`, and of other cards if a gang begins on it."""
        until_ns = 0
        for name in self._order(card, now_ns):
            gang = self._gang(name)
            if len(gang) == 1:
                return {card: self.cards[card].grant(name, now_ns, until_ns)}
            if all(self._is_free(other) for other in gang) and not self._is_behind(name):
                return self._begin_gang(name, now_ns)
            if name not in self.waiting:
                self.waiting.append(name)
            lease_ns = self.cards[card].lease_ns
            free_ns = self._free_ns(gang, now_ns + lease_ns)
            until_ns = min(until_ns or free_ns, free_ns)
            if until_ns - now_ns < LEAST_LOAN * lease_ns:
                until_ns = max(until_ns, now_ns + int(LEAST_LOAN * lease_ns))
                break
        return {card: self.cards[card].grant(IDLE, now_ns, until_ns)}

    def _order(self, card: str, now_ns: int) -> list[str]:
        """Tenants in the order of their turns: gangs that wait for this card first."""
        names = [tenant.name for tenant in self.cards[card].ranked(now_ns)]
        first = [name for name in self.waiting if card in self.cards_of[name] and name in names]
        return first + [name for name in names if name not in first]

    def _gang(self, name: str) -> tuple[str, ...]:
        return self.cards_of.get(name, (IDLE,))

    def _is_free(self, card: str) -> bool:
        holder = self.cards[card].holder
        return holder is None or holder.name == IDLE

    def _is_behind(self, name: str) -> bool:
        """Whether a gang that has waited longer wants one of its cards."""
        older = self.waiting[: self.waiting.index(name)] if name in self.waiting else self.waiting
        return any(set(self.cards_of[each]) & set(self.cards_of[name]) for each in older)

    def _free_ns(self, gang: tuple[str, ...], otherwise_ns: int) -> int:
        """When the last of these cards should be free; `otherwise_ns` if all are."""
        holders = [self.cards[card].holder for card in gang]
        return max((h.until_ns for h in holders if h and h.name), default=otherwise_ns)

    def _begin_gang(self, name: str, now_ns: int) -> Mapping[str, Grant]:
        gang = self.cards_of[name]
        until_ns = now_ns + min(self.cards[card].lease_ns for card in gang)
        for card in gang:
            self.cards[card].end(now_ns)
        if name in self.waiting:
            self.waiting.remove(name)
        return {card: self.cards[card].grant(name, now_ns, until_ns) for card in gang}

    def _level(self, now_ns: int) -> None:
        """Limit every gang on each card to the share on its scarcest card, so that none idles."""
        gangs = {name: cards for name, cards in self.cards_of.items() if len(cards) > 1}
        for name, cards in gangs.items():
            for card in cards:
                self.cards[card].set_cap(name, Fraction(1), now_ns)
        for _ in range(LEVELLINGS):
            for name, cards in gangs.items():
                least = min(self.cards[card].tenants[name].share for card in cards)
                for card in cards:
                    if self.cards[card].tenants[name].share > least:
                        self.cards[card].set_cap(name, least, now_ns)
