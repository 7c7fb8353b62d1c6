"""What comes after the present lease, decided while it lasts, so that no hand-over waits.

A decision is the policy's own, taken on a copy of the card at the moment when the lease should end.
It is given up where that moment is missed by much, or where a tenant comes, goes or changes. What
needs more than one card is never decided ahead.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from gpu_shim.policy.gangs import Node
from gpu_shim.policy.leases import IDLE, Card, LeaseTerms

#: A lease that ends later than it should by more than this part of one is looked at anew.
LATEST: Final = Fraction(1, 8)


@dataclass(slots=True, frozen=True)
class Turn:
    """What happens at the end of the lease that `holder` has.

    At `close_ns` it either goes on under new `terms` (`is_renewal`) or stops; in that case `terms`
    are the next tenant's, which begins once nothing of it is left on the card, up to
    `latest_ns`. Without terms that is decided then.
    """

    holder: str
    close_ns: int
    latest_ns: int
    is_renewal: bool = False
    terms: LeaseTerms | None = None


def foresee(node: Node, card: str, now_ns: int, is_closed: bool) -> Turn | None:
    """The turn after the present one; None where there is nothing to say ahead. O(tenants).

    `is_closed`: the holder has stopped already, and something of it may be left on the card.
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
