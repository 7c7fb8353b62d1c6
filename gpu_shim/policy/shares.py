"""Computes each tenant's part of a card's time.

A tenant is guaranteed its request and never exceeds its limit; the time beyond the requests of busy
tenants is split equally. Shares are exact fractions of one card.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

Mode = Literal["strict", "fair"]

#: The share of a tenant without any other, because the requests fill the card: one lease in ten
#: plans of twenty, so that no program hangs for ever.
FLOOR: Final = Fraction(1, 200)
#: All floors of one card together: one lease in twenty.
FLOORS: Final = Fraction(1, 20)


@dataclass(slots=True, frozen=True)
class Claim:
    """A tenant's claim on one card, as parts of its time and of its memory."""

    name: str
    request: Fraction
    limit: Fraction
    memory: Fraction = Fraction(0)


def automatic(mode: Mode, fraction: Fraction | None) -> tuple[Fraction, Fraction]:
    """(request, limit) of a tenant that states neither; `fraction` is None if it requested MiB.

    Only a fraction is guaranteed time, and only strict mode limits the tenant to it.
    """
    if fraction is None:
        return Fraction(0), Fraction(1)
    return fraction, fraction if mode == "strict" else Fraction(1)


def excess_of(claims: Iterable[Claim]) -> str:
    """Why these claims cannot share one card; empty if they can."""
    claims = list(claims)
    for claim in claims:
        if not 0 <= claim.request <= claim.limit <= 1:
            return f"{claim.name}: request {claim.request} and limit {claim.limit} do not fit"
    if (requests := sum(claim.request for claim in claims)) > 1:
        return f"compute requests add up to {requests} of the card"
    if (memory := sum(claim.memory for claim in claims)) > 1:
        return f"memory adds up to {memory} of the card"
    return ""


def split(busy: Sequence[Claim]) -> Mapping[str, Fraction]:
    """Each tenant's part of the time while exactly these are busy; O(n^2)."""
    due = {claim.name: claim.request for claim in busy}
    left = 1 - sum(due.values(), start=Fraction(0))
    below = [claim for claim in busy if due[claim.name] < claim.limit]
    while below and left > 0:
        part = left / len(below)
        for claim in below:
            more = min(part, claim.limit - due[claim.name])
            due[claim.name] += more
            left -= more
        below = [claim for claim in below if due[claim.name] < claim.limit]
    return _with_floors(busy, due)


def _with_floors(busy: Sequence[Claim], due: dict[str, Fraction]) -> dict[str, Fraction]:
    """The same with a minimum for tenants that would get nothing; the others give in proportion."""
    without = [claim for claim in busy if not due[claim.name] and claim.limit]
    if not without:
        return due
    floor = min(FLOOR, FLOORS / len(without))
    kept = 1 - floor * len(without)
    due = {name: share * kept for name, share in due.items()}
    return due | {claim.name: min(floor, claim.limit) for claim in without}
