"""Runs a case in virtual time: the policy alone, exact."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from math import lcm

from gpu_shim.cases.model import SECOND, CardCase
from gpu_shim.cases.outcome import CaseOutcome, Held
from gpu_shim.policy.leases import Card, LeaseSettings

#: Leases of the longest run. A case whose shares are whole leases only later is checked to within
#: one lease.
LONGEST = 20_000


def settings_of(case: CardCase) -> LeaseSettings:
    """The policy's settings, with exactly the case's lease length."""
    return LeaseSettings(lease_ns=int(case.lease * SECOND), precision=case.precision)


def admit(case: CardCase, card: Card) -> dict[str, str]:
    """Admit every workload in order; returns the refused ones, and why."""
    refused = {}
    for claim in case.claims()[0]:
        if why := card.admit(claim, card.now_ns):
            refused[claim.name] = why
    return refused


def run(case: CardCase) -> CaseOutcome:
    """Run the case's window; if nothing varies, enough plans to make all shares whole leases.

    A share that is not a whole number of leases at the end is checked to within one lease; to
    within two if workloads come and go, because one may owe a lease when another leaves.
    """
    card = Card(settings_of(case))
    refused = admit(case, card)
    scene = _Scene(case, card)
    seconds = _length(case, card)
    scene.run_until(int(seconds * SECOND))
    held = {
        name: Held(
            tenant.due_ns / SECOND, Fraction(tenant.held_ns, SECOND), scene.counts.get(name, [])
        )
        for name, tenant in card.tenants.items()
    }
    n_leases = seconds / case.lease
    is_even = all((each.due_s / case.lease).denominator == 1 for each in held.values())
    is_grid = all(
        (at / case.lease).denominator == 1
        for each in case.workloads
        for at, _ in each.changes(seconds)
    )
    is_exact = is_even and is_grid and n_leases.denominator == 1
    tolerance = Fraction(0) if is_exact else case.lease * (2 if case.is_varying else 1)
    return CaseOutcome(seconds, held, refused, tolerance)


def _length(case: CardCase, card: Card) -> Fraction:
    """Seconds to run."""
    plan_s = case.lease / case.precision
    if case.window is not None:
        return case.window
    if case.is_varying:
        ends = [end for each in case.workloads for _, end in each.spans()]
        return max(ends, default=plan_s)
    for each in case.workloads:
        if each.name in card.tenants:
            card.set_busy(each.name, bool(each.busy), 0)
    n_leases = lcm(*(tenant.share.denominator for tenant in card.tenants.values()), 20)
    whole = lcm(n_leases, case.precision.denominator)
    return case.lease * min(max(whole, 200), LONGEST)


@dataclass(slots=True)
class _Scene:
    """Workloads that become busy and idle on a card, with work that ends exactly with its lease."""

    case: CardCase
    card: Card
    counts: dict[str, list[Fraction]] = field(default_factory=dict)
    _since_ns: int = 0
    _current: dict[str, int] = field(default_factory=dict)

    def run_until(self, end_ns: int) -> None:
        """Process all leases and changes up to `end_ns`."""
        card = self.card
        changes = self._changes(end_ns)
        change = next(changes, None)
        while True:
            while change is not None and change[0] == card.now_ns:
                self._apply(change[1], change[2])
                change = next(changes, None)
            self._turn_plan()
            if card.now_ns >= end_ns:
                return
            if card.holder is None:
                self._count(card.pick(card.now_ns).name)
            assert card.holder is not None
            until_ns = min(card.holder.until_ns, end_ns, change[0] if change else end_ns)
            card.advance(until_ns)
            if until_ns >= card.holder.until_ns:
                card.end(until_ns)

    def _changes(self, end_ns: int) -> Iterator[tuple[int, str, bool]]:
        found = [
            (int(at * SECOND), each.name, is_busy)
            for each in self.case.workloads
            if each.name in self.card.tenants
            for at, is_busy in each.changes(Fraction(end_ns, SECOND))
        ]
        # At equal times, workloads stop before others begin.
        return iter(sorted(found, key=lambda each: (each[0], each[2])))

    def _apply(self, name: str, is_busy: bool) -> None:
        card = self.card
        if card.tenants[name].is_busy == is_busy:
            return
        card.set_busy(name, is_busy, card.now_ns)
        self._since_ns, self._current = card.now_ns, {}
        if card.holder is not None and card.holder.name in ("", name):
            card.end(card.now_ns)

    def _turn_plan(self) -> None:
        """Record the counts of a finished plan during which the busy workloads did not change."""
        plan_ns = self.card.settings.plan_ns
        if self.card.now_ns >= self._since_ns + plan_ns:
            for name in self.card.tenants:
                self.counts.setdefault(name, []).append(Fraction(self._current.get(name, 0)))
            self._since_ns, self._current = self._since_ns + int(plan_ns), {}

    def _count(self, name: str) -> None:
        self._current[name] = self._current.get(name, 0) + 1
