"""Leases of one card: lags, overruns, early yields, tenants that become busy or idle."""

from fractions import Fraction

from gpu_shim.policy.leases import Card, LeaseSettings
from gpu_shim.policy.shares import Claim

MS = 1_000_000
LEASE = 250 * MS


def card_of(*claims: tuple[str, str, str], settings: LeaseSettings | None = None) -> Card:
    """A card on which every tenant is busy."""
    card = Card(settings or LeaseSettings())
    for name, request, limit in claims:
        assert card.admit(Claim(name, Fraction(request), Fraction(limit)), 0) == ""
        card.set_busy(name, True, 0)
    return card


def hold(card: Card, took_ns: int = 0) -> str:
    """One lease, held for as long as granted or for `took_ns`; its holder."""
    grant = card.pick(card.now_ns)
    card.end(card.now_ns + took_ns if took_ns and grant.name else grant.until_ns)
    return grant.name


def held_ms(card: Card) -> dict[str, int]:
    return {name: tenant.held_ns // MS for name, tenant in card.tenants.items()}


def test_a_quarter_and_three_quarters_alternate_instead_of_running_in_blocks() -> None:
    card = card_of(("a", "1/4", "1/4"), ("b", "3/4", "3/4"))
    turns = "".join(hold(card) for _ in range(20))
    assert turns.count("a") == 5
    assert "aa" not in turns
    assert "bbbb" not in turns.strip("b")


def test_a_strict_half_alone_leaves_the_card_idle_for_the_other_half() -> None:
    card = card_of(("a", "1/2", "1/2"))
    assert [hold(card) for _ in range(6)] == ["a", "", "a", "", "a", ""]


def test_alone_in_fair_mode_a_tenant_has_all_and_is_not_contended() -> None:
    card = card_of(("a", "1/2", "1"))
    grant = card.pick(0)
    assert (grant.name, grant.is_contended) == ("a", False)


def test_an_overrun_is_charged_and_repaid() -> None:
    card = card_of(("a", "1/2", "1"), ("b", "1/2", "1"))
    while hold(card, 3 * LEASE if card.now_ns == 0 else 0) != "a":
        pass
    for _ in range(38):
        hold(card)
    assert card.tenants["a"].overrun_ns == 2 * LEASE
    assert abs(card.tenants["a"].held_ns - card.tenants["b"].held_ns) <= LEASE


def plans_of_a(card: Card, n_plans: int, late_ns: int = 0) -> list[Fraction]:
    """Leases that `a` has in plan after plan from now on, where each ends a little late."""
    found, first = list[Fraction](), card.n_plans + 1
    while len(found) < n_plans:
        before, grant = card.n_plans, card.pick(card.now_ns)
        if card.n_plans > max(before, first):
            found.append(Fraction(card.tenants["a"].held_last_plan_ns, card.lease_ns))
        card.end(grant.end_ns + (late_ns if grant.name == "a" else 0))
    return found


def test_what_each_lease_takes_too_long_never_adds_up_to_a_whole_lease_less() -> None:
    card = card_of(("a", "1/4", "1"), ("b", "3/4", "1"))
    plans = plans_of_a(card, 120, 10 * MS)
    assert all(abs(leases - 5) <= Fraction(1, 5) for leases in plans)
    assert abs(card.tenants["a"].held_ns - card.tenants["a"].due_ns) <= LEASE * 3 // 2


def test_what_is_missing_beyond_a_lease_is_made_up_for_by_as_much_and_once() -> None:
    card = card_of(("a", "1/4", "1"), ("b", "3/4", "1"))
    card.grant("b", 0)
    card.end(5 * LEASE)
    assert card.tenants["a"].lag == Fraction(5, 4) * LEASE
    assert plans_of_a(card, 3) == [Fraction(21, 4), 5, 5]


def test_kernels_of_three_seconds_are_repaid_too() -> None:
    card = card_of(("a", "1/4", "1"), ("b", "3/4", "1"))
    while card.now_ns < 240 * 1000 * MS:
        grant = card.pick(card.now_ns)
        card.end(card.now_ns + 3000 * MS if grant.name == "a" else grant.until_ns)
    assert abs(Fraction(card.tenants["a"].held_ns, card.now_ns) - Fraction(1, 4)) < Fraction(1, 50)


def test_a_tenant_owes_a_minute_of_the_card_at_most_and_repays_it_from_its_share() -> None:
    card = card_of(("a", "1/20", "1"), ("b", "19/20", "1"))
    while card.pick(card.now_ns).name != "a":
        card.end(card.now_ns + LEASE)
    card.end(card.now_ns + 300 * 1000 * MS)
    assert card.tenants["a"].lag == -60 * 1000 * MS
    began = card.now_ns
    while hold(card) != "a":
        pass
    assert 1100 < (card.now_ns - began) / (1000 * MS) < 1201


def test_a_tenant_that_yields_early_is_charged_only_for_the_time_it_held() -> None:
    card = card_of(("a", "1/2", "1"), ("b", "1/2", "1"))
    while card.now_ns < 10_000 * MS:
        grant = card.pick(card.now_ns)
        card.end(card.now_ns + 50 * MS if grant.name == "a" else grant.until_ns)
    a, b = held_ms(card).values()
    assert abs(a - b) <= 500


def test_an_idle_tenant_is_due_nothing_and_the_other_has_it_in_fair_mode() -> None:
    card = card_of(("a", "1/4", "1"), ("b", "3/4", "1"))
    card.set_busy("b", False, 0)
    assert {hold(card) for _ in range(20)} == {"a"}
    assert card.tenants["b"].due_ns == 0


def test_going_idle_and_back_often_gains_nothing_in_strict_mode() -> None:
    card = card_of(("a", "1/4", "1/4"))
    while card.now_ns < 60_000 * MS:
        card.set_busy("a", False, card.now_ns)
        card.set_busy("a", True, card.now_ns)
        grant = card.pick(card.now_ns)
        card.end(min(grant.until_ns, card.now_ns + 30 * MS))
    assert Fraction(card.tenants["a"].held_ns, card.now_ns) <= Fraction(1, 4) + Fraction(1, 60)


def test_shares_change_live() -> None:
    card = card_of(("a", "1/4", "1/4"), ("b", "3/4", "3/4"))
    for _ in range(20):
        hold(card)
    assert card.admit(Claim("b", Fraction(1, 4), Fraction(1, 4)), card.now_ns) == ""
    assert card.admit(Claim("a", Fraction(3, 4), Fraction(3, 4)), card.now_ns) == ""
    before = held_ms(card)
    for _ in range(20):
        hold(card)
    assert {name: ms - before[name] for name, ms in held_ms(card).items()} == {
        "a": 3750,
        "b": 1250,
    }


def test_a_tenant_that_does_not_fit_is_refused_and_nothing_changes() -> None:
    card = card_of(("a", "1/2", "1"))
    assert "add up" in card.admit(Claim("b", Fraction(2, 3), Fraction(1)), 0)
    assert list(card.tenants) == ["a"]


def test_when_the_holder_leaves_its_lease_is_over_and_others_go_on() -> None:
    card = card_of(("a", "1/2", "1"), ("b", "1/2", "1"))
    holder = card.pick(0).name
    card.remove(holder, 100 * MS)
    assert card.holder is None
    assert {hold(card) for _ in range(40)} == {"b" if holder == "a" else "a"}


def test_leases_shrink_so_that_small_shares_wait_no_longer_than_told() -> None:
    settings = LeaseSettings(longest_gap_ns=1000 * MS)
    card = card_of(("a", "1/10", "1/10"), ("b", "9/10", "9/10"), settings=settings)
    assert card.lease_ns == 1000 * MS // 9
    ends = list[int]()
    longest = 0
    while card.now_ns < 20_000 * MS:
        before = card.now_ns
        if hold(card) == "a":
            longest = max(longest, before - ends[-1] if ends else 0)
            ends.append(card.now_ns)
    assert longest <= 1300 * MS
    assert abs(Fraction(card.tenants["a"].held_ns, card.now_ns) - Fraction(1, 10)) < Fraction(
        1, 100
    )


def test_leases_never_shrink_below_the_shortest() -> None:
    settings = LeaseSettings(longest_gap_ns=1000 * MS)
    assert card_of(("a", "1/1000", "1"), settings=settings).lease_ns == 20 * MS
