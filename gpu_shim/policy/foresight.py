"""Decides what follows the current lease while it lasts, so that no hand-over waits.

The policy decides on a copy of the card, at the time when the lease should end. The decision is
dropped if that time is missed by much, or if a tenant is added, removed or changed. Tenants with
more than one card are never decided ahead.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from gpu_shim.policy.gangs import Node
from gpu_shim.policy.leases import IDLE, Card, LeaseTerms

#: A lease that ends late by more than this part of a lease is decided again.
LATEST: Final = Fraction(1, 8)


@dataclass(slots=True, frozen=True)
class Turn:
    """What happens at the end of the lease of `holder`.

    At `close_ns` the lease either continues under new `terms` (`is_renewal`) or its gate closes. In
    that case `terms` are the next tenant's, whose lease begins once the holder's work has drained,
    at `latest_ns` at the latest. Without terms the decision is made then.
    """

    holder: str
    close_ns: int
    latest_ns: int
    is_renewal: bool = False
    terms: LeaseTerms | None = None


def foresee(node: Node, card: str, now_ns: int, is_closed: bool) -> Turn | None:
    """The turn after the current lease; None if nothing can be decided ahead. O(tenants).

    `is_closed`: the holder's gate is closed, but its work may not have drained.
    """
    account = node.cards[card]
    held = account.holder
    if held is None or held.name == IDLE or len(node.cards_of[held.name]) > 1:
        return None
    latest_ns = held.end_ns + int(LATEST * account.lease_ns)
    if any(card in node.cards_of[gang] for gang in node.waiting):
        return Turn(held.name, held.until_ns, latest_ns)
    then = account.copied()
    if not is_closed:
        close_ns = max(now_ns, held.until_ns)
        if _first(then, close_ns) == held.name:
            then.end(close_ns)
            return Turn(held.name, held.until_ns, latest_ns, True, then.terms(held.name))
    end_ns = max(now_ns, held.end_ns)
    then.end(end_ns)
    name = _first(then, end_ns)
    if name == IDLE or len(node.cards_of[name]) > 1:
        return Turn(held.name, held.until_ns, latest_ns)
    return Turn(held.name, held.until_ns, latest_ns, False, then.terms(name))


def _first(card: Card, now_ns: int) -> str:
    ranked = card.ranked(now_ns)
    return ranked[0].name if ranked else IDLE
