"""Decides which tenant of one card gets the next lease.

Time is divided into plans. At its start a plan sets how many leases each tenant has in it: the
whole part of its share, and for some tenants one more. Those are chosen by earliest
pseudo-deadline, which keeps every tenant within one lease of its exact share for ever (Baruah et
al., Proportionate progress, 1996). Within the plan leases alternate by lag, the time due minus the
time held: of the tenants that are not ahead, the one with the earliest due lease is next (Bennett
and Zhang, WF2Q, 1996). Time that is due to no tenant belongs to an idle tenant, under the same
rules.

Tenants are charged the time they held, not the time granted: a tenant that overran gets less until
it is repaid, and one that yielded early keeps its unused time. A lag beyond that one lease is
compensated exactly in the next plan, if need be by a slightly longer or shorter lease. A change of
the busy tenants starts a new plan; lags are kept.
"""

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil, floor
from typing import Final

from gpu_shim.policy.shares import Claim, excess_of, split

IDLE: Final = ""
#: Leases by which lags vary when every tenant gets exactly its due.
SWING: Final = Fraction(1)
#: Plans of debt that a tenant can have: one kernel can take longer than a plan.
LONGEST_DEBT: Final = 12
#: The part by which a plan may be extended when leases overran.
LONGEST_DELAY: Final = Fraction(1, 4)
#: A remainder of a quota below this part of a lease is not worth a hand-over; it is carried over.
LEAST_REST: Final = Fraction(1, 5)
_MS: Final = 1_000_000


@dataclass(slots=True, frozen=True)
class LeaseSettings:
    """The granularity of time slicing. A plan is `lease_ns / precision` long.

    With `longest_gap_ns`, leases shrink if the tenant with the smallest guaranteed share would wait
    longer than that between two leases; never below `shortest_ns`.
    """

    lease_ns: int = 250 * _MS
    precision: Fraction = Fraction(1, 20)
    longest_gap_ns: int = 0
    shortest_ns: int = 20 * _MS

    @property
    def plan_ns(self) -> Fraction:
        """Length of the cycle in which every tenant gets its due."""
        return self.lease_ns / self.precision

    def lease_among(self, busy: Iterable[Claim]) -> int:
        """Length of a lease while these tenants are busy."""
        least = min((claim.request for claim in busy if claim.request), default=Fraction(1))
        if not self.longest_gap_ns or least == 1:
            return self.lease_ns
        fitting = floor(self.longest_gap_ns * least / (1 - least))
        return min(self.lease_ns, max(self.shortest_ns, fitting))


@dataclass(slots=True, frozen=True)
class Grant:
    """The card is held by `name`, or idle if the name is empty.

    The holder must stop launching at `until_ns`, so that its work ends at about `end_ns`.
    """

    name: str
    until_ns: int
    end_ns: int
    is_contended: bool


@dataclass(slots=True, frozen=True)
class LeaseTerms:
    """A lease that has not begun: its length, and how much before its end launching must stop."""

    name: str
    length_ns: int
    early_ns: int
    is_contended: bool

    def from_(self, begin_ns: int) -> Grant:
        """The grant of this lease from `begin_ns` on."""
        end_ns = begin_ns + self.length_ns
        return Grant(self.name, end_ns - self.early_ns, end_ns, self.is_contended)


@dataclass(slots=True)
class Tenant:
    """A claim on the card and its account. Times are nanoseconds, `lag` is exact.

    `cap` limits a tenant with several cards to its share on the others; `drain_ns` is how long its
    recent work ran on after it had to stop launching. `is_late`: work of a lease that was ended at
    `ended_ns` still runs on the card, beside the holder's.
    """

    claim: Claim
    cap: Fraction = Fraction(1)
    drain_ns: int = 0
    is_busy: bool = False
    is_late: bool = False
    share: Fraction = Fraction(0)
    lag: Fraction = Fraction(0)
    due_ns: Fraction = Fraction(0)
    held_ns: int = 0
    overrun_ns: int = 0
    ended_ns: int = 0
    quota: Fraction = Fraction(0)
    held_in_plan_ns: int = 0
    held_last_plan_ns: int = 0

    @property
    def name(self) -> str:
        """The tenant's name, unique on the card."""
        return self.claim.name


@dataclass(slots=True)
class Card:
    """The account of one card. Every call passes the time, which never goes back."""

    settings: LeaseSettings = field(default_factory=LeaseSettings)
    now_ns: int = 0
    tenants: dict[str, Tenant] = field(default_factory=dict)
    holder: Grant | None = None
    lease_ns: int = field(init=False)
    n_plans: int = 0
    last_plan_ns: int = 0
    _idle: Tenant = field(init=False)
    _plan_begin_ns: int = 0
    _plan_end_ns: Fraction = Fraction(0)
    _is_stale: bool = True

    def __post_init__(self) -> None:
        self.lease_ns = self.settings.lease_ns
        self._idle = Tenant(Claim(IDLE, Fraction(0), Fraction(1)), is_busy=True)

    # -- tenants ------------------------------------------------------------------------------

    def admit(self, claim: Claim, now_ns: int) -> str:
        """Add a tenant, or change its shares; returns the reason if it does not fit."""
        others = [each.claim for name, each in self.tenants.items() if name != claim.name]
        if why := excess_of([*others, claim]):
            return why
        self.advance(now_ns)
        if claim.name in self.tenants:
            self.tenants[claim.name].claim = claim
        else:
            self.tenants[claim.name] = Tenant(claim)
        self._change()
        return ""

    def remove(self, name: str, now_ns: int) -> None:
        """Remove a tenant, and end its lease."""
        self.advance(now_ns)
        if self.holder is not None and self.holder.name == name:
            self.holder = None
        if (tenant := self.tenants.pop(name, None)) is not None:
            self._idle.lag += tenant.lag
        self._change()

    def set_busy(self, name: str, is_busy: bool, now_ns: int) -> None:
        """Record whether a tenant wants the card. It is due time only while it does."""
        tenant = self.tenants[name]
        if tenant.is_busy != is_busy:
            self.advance(now_ns)
            tenant.is_busy = is_busy
            self._change()

    def set_cap(self, name: str, cap: Fraction, now_ns: int) -> None:
        """Keep a tenant below its limit while another of its cards gives it no more."""
        tenant = self.tenants[name]
        if tenant.cap != cap:
            self.advance(now_ns)
            tenant.cap = cap
            self._change()

    def set_late(self, name: str, is_late: bool, now_ns: int) -> None:
        """Record whether work of a tenant's ended lease still runs on the card, and is charged."""
        self.advance(now_ns)
        self.tenants[name].is_late = is_late

    def _change(self) -> None:
        """Recompute the shares; the next pick starts a plan."""
        busy = [
            replace(tenant.claim, limit=min(tenant.claim.limit, tenant.cap))
            for tenant in self.tenants.values()
            if tenant.is_busy
        ]
        shares = split(busy)
        for name, tenant in self.tenants.items():
            tenant.share = shares.get(name, Fraction(0))
        self._idle.share = 1 - sum(shares.values(), start=Fraction(0))
        self.lease_ns = self.settings.lease_among(busy)
        self._is_stale = True

    # -- the account ---------------------------------------------------------------------------

    def advance(self, now_ns: int) -> None:
        """Charge the time since the last call: every tenant was due its share, the holder held all.

        Late tenants shared it with the holder in equal parts, as the hardware divides a card.
        """
        took = now_ns - self.now_ns
        if took <= 0:
            return
        bound = self.settings.plan_ns
        holder = self._account(self.holder.name if self.holder else IDLE)
        late = [each for each in self.tenants.values() if each.is_late and each is not holder]
        part = took // (len(late) + (holder is not self._idle)) if late else 0
        had = {each.name: part for each in late} | {holder.name: took - part * len(late)}
        for tenant in (*self.tenants.values(), self._idle):
            due = tenant.share * took
            tenant.due_ns += due
            lag = tenant.lag + due - had.get(tenant.name, 0)
            tenant.lag = max(-bound * LONGEST_DEBT, min(bound, lag))
            tenant.held_ns += had.get(tenant.name, 0)
            tenant.held_in_plan_ns += had.get(tenant.name, 0)
        for each in late:
            each.overrun_ns += part
        if self.holder is not None:
            over = max(0, now_ns - max(self.holder.end_ns, self.now_ns))
            holder.overrun_ns += over if holder is not self._idle else 0
        self.now_ns = now_ns

    def end(self, now_ns: int) -> None:
        """End the holder's lease and charge it up to now; its work has drained."""
        self.advance(now_ns)
        if self.holder is not None:
            self._account(self.holder.name).ended_ns = now_ns
        self.holder = None

    def drained(self, name: str, took_ns: int) -> None:
        """Record how long a lease's work ran on after its gate closed; the next closes earlier."""
        if (tenant := self.tenants.get(name)) is not None:
            tenant.drain_ns += (took_ns - tenant.drain_ns) // 4

    def _account(self, name: str) -> Tenant:
        return self.tenants.get(name, self._idle)

    # -- the next lease ------------------------------------------------------------------------

    def ranked(self, now_ns: int) -> list[Tenant]:
        """Tenants that may hold the free card now, including the idle one, the next first."""
        self.advance(now_ns)
        open_ = [] if self._is_stale else self._with_budget()
        if now_ns >= self._plan_end_ns:
            # The plan is late, since leases overran: the tenants get their due first, and idle time
            # compensates.
            is_over = now_ns >= self._plan_end_ns + self.settings.plan_ns * LONGEST_DELAY
            open_ = [] if is_over else [each for each in open_ if each is not self._idle]
        if not open_:
            self._begin_plan()
            open_ = self._with_budget()
        return sorted(open_, key=self._urgency)

    def grant(self, name: str, now_ns: int, until_ns: int = 0) -> Grant:
        """Give the free card to `name` for a lease, at most until `until_ns` if that is not 0."""
        self.holder = self.terms(name, until_ns - now_ns if until_ns else 0).from_(now_ns)
        return self.holder

    def terms(self, name: str, at_most_ns: int = 0) -> LeaseTerms:
        """The terms of a lease of `name` now; `at_most_ns` limits its length, 0: no limit."""
        length_ns = self._length_for(self._account(name))
        length_ns = min(at_most_ns or length_ns, length_ns)
        # At most by half, or work that drains slowly would get no time at all.
        early_ns = min(self._account(name).drain_ns, length_ns // 2)
        others = any(each.is_busy for other, each in self.tenants.items() if other != name)
        is_all = self._account(name).share == 1
        return LeaseTerms(name, length_ns, early_ns, others or not is_all)

    def begin(self, terms: LeaseTerms, now_ns: int) -> Grant:
        """Give the free card under terms that were decided before, on a copy."""
        self.ranked(now_ns)
        self.holder = terms.from_(now_ns)
        return self.holder

    def is_ahead(self, name: str, now_ns: int) -> bool:
        """Whether a tenant has held more than a lease above its due.

        False for a stuck tenant: its lease is short already.
        """
        self.advance(now_ns)
        tenant = self._account(name)
        return tenant.lag < -SWING * self.lease_ns and not self._is_stuck(tenant)

    def cut(self, name: str, now_ns: int) -> None:
        """Make the holder `name` stop launching now; launched work may finish."""
        held = self.holder
        if held is not None and held.name == name:
            until_ns = min(now_ns, held.until_ns)
            end_ns = min(until_ns + self._account(name).drain_ns, held.end_ns)
            self.holder = replace(held, until_ns=until_ns, end_ns=end_ns)

    def copied(self) -> "Card":
        """A copy of the card, on which decisions can be tried."""
        other = copy(self)
        other.tenants = {name: copy(tenant) for name, tenant in self.tenants.items()}
        other._idle = copy(self._idle)
        return other

    def pick(self, now_ns: int) -> Grant:
        """Give the free card to the next tenant."""
        assert self.holder is None, "the lease before has not ended"
        ranked = self.ranked(now_ns)
        return self.grant(ranked[0].name if ranked else IDLE, now_ns)

    def _with_budget(self) -> list[Tenant]:
        """Busy tenants, and the idle tenant, with some quota left in this plan."""
        return [
            tenant
            for tenant in (*self.tenants.values(), self._idle)
            if (tenant.is_busy and self._left_of(tenant) >= self.lease_ns * LEAST_REST)
            or self._is_stuck(tenant)
        ]

    def _left_of(self, tenant: Tenant) -> int:
        """Nanoseconds left of the tenant's quota in this plan."""
        return floor(tenant.quota * self.lease_ns) - tenant.held_in_plan_ns

    def _length_for(self, tenant: Tenant) -> int:
        """The length of a lease; the last one of a plan completes the quota."""
        if self._is_stuck(tenant):
            return ceil(self.lease_ns * LEAST_REST)
        left = self._left_of(tenant)
        return left if 0 < 2 * left < 3 * self.lease_ns else self.lease_ns

    def _urgency(self, tenant: Tenant) -> tuple[bool, bool, Fraction, Fraction]:
        """Sort key: stuck tenants, then those not ahead by their next due lease, then by lag."""
        is_second = not self._is_stuck(tenant)
        if tenant.lag < 0 or not tenant.share:
            return is_second, True, -tenant.lag, Fraction(0)
        return is_second, False, (self.lease_ns - tenant.lag) / tenant.share, -tenant.lag

    def _is_stuck(self, tenant: Tenant) -> bool:
        """Whether the tenant has had work on the card, and no lease, for a plan.

        That work may need another launch of the tenant to end: it gets a short lease, whatever its
        debt.
        """
        since_ns = self.now_ns - tenant.ended_ns
        return tenant.is_late and tenant.is_busy and since_ns >= self.settings.plan_ns

    def _begin_plan(self) -> None:
        """Set every quota; Σ quotas is the plan's leases unless debts or limits forbid it."""
        n_leases = max(1, floor(self.settings.plan_ns / self.lease_ns))
        self.n_plans += 1
        self.last_plan_ns = self.now_ns - self._plan_begin_ns
        self._plan_begin_ns = self.now_ns
        self._plan_end_ns = Fraction(self.now_ns + n_leases * self.lease_ns)
        self._is_stale = False
        dealt, wanting = Fraction(0), list[tuple[Fraction, Fraction, Tenant]]()
        for tenant in (*self.tenants.values(), self._idle):
            tenant.held_last_plan_ns, tenant.held_in_plan_ns = tenant.held_in_plan_ns, 0
            lag = tenant.lag / self.lease_ns
            carried = max(-SWING, min(SWING, lag))
            due = tenant.share * n_leases if tenant.is_busy else Fraction(0)
            most = Fraction(ceil(tenant.claim.limit * n_leases)) if due else Fraction(0)
            tenant.quota = max(Fraction(0), min(floor(due) + lag - carried, most))
            dealt += tenant.quota
            part = due - floor(due)
            if part and carried + part > 0 and tenant.quota < most:
                wanting.append(((1 - carried) / part, most, tenant))
        wanting.sort(key=lambda each: (ceil(each[0]), each[0]))
        for _, most, tenant in wanting[: max(0, round(n_leases - dealt))]:
            tenant.quota = min(tenant.quota + 1, most)
