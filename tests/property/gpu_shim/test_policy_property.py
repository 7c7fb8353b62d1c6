"""What holds for any tenants, whatever they do: sums, limits, none starves, nothing is wasted."""

from fractions import Fraction
from math import ceil, floor, lcm

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpu_shim.policy.foresight import foresee
from gpu_shim.policy.gangs import Node
from gpu_shim.policy.leases import Card, LeaseSettings
from gpu_shim.policy.shares import Claim, split

RUN = settings(max_examples=30)
LEASE = 100
PLAN = 20 * LEASE

requests = st.sampled_from([0, 10, 17, 20, 33, 50, 100, 125, 200, 250, 330, 500]).map(
    lambda milli: Fraction(milli, 1000)
)


@st.composite
def claims(draw: st.DrawFn, is_strict: bool | None = None) -> list[Claim]:
    """Tenants that fit on one card; strict ones are limited to their requests."""
    found = list[Claim]()
    for at in range(draw(st.integers(1, 6))):
        request = draw(requests)
        if sum(each.request for each in found) + request > 1:
            continue
        strict = draw(st.booleans()) if is_strict is None else is_strict
        limit = (
            request
            if strict and request
            else max(request, draw(st.sampled_from([Fraction(1), Fraction(3, 10)])))
        )
        found.append(Claim(f"t{at}", request, limit))
    return found


def card_of(found: list[Claim]) -> Card:
    card = Card(LeaseSettings(lease_ns=LEASE))
    for claim in found:
        assert card.admit(claim, 0) == ""
        card.set_busy(claim.name, True, 0)
    return card


@RUN
@given(claims())
def test_shares_add_up_to_at_most_one_and_lie_between_request_and_limit(found: list[Claim]) -> None:
    due = split(found)
    assert sum(due.values()) <= 1
    has_floor = any(not claim.request and due[claim.name] <= Fraction(1, 200) for claim in found)
    for claim in found:
        assert due[claim.name] <= claim.limit
        assert due[claim.name] >= claim.request * (Fraction(19, 20) if has_floor else 1)
    assert sum(due.values()) == 1 or all(due[each.name] == each.limit for each in found)


@RUN
@given(claims())
def test_every_plan_has_the_whole_leases_and_the_long_run_is_exact(found: list[Claim]) -> None:
    card = card_of(found)
    shares = {name: tenant.share for name, tenant in card.tenants.items()}
    n_leases = lcm(20, *(share.denominator for share in shares.values()))
    assume(n_leases <= 2000)
    counts = dict.fromkeys(shares, 0)
    for at in range(n_leases):
        name = card.pick(at * LEASE).name
        card.end((at + 1) * LEASE)
        if name:
            counts[name] += 1
        if at % 20 == 19:
            for each, share in shares.items():
                assert floor(20 * share) <= counts[each] <= ceil(20 * share)
            counts = dict.fromkeys(shares, 0)
    for name, tenant in card.tenants.items():
        assert tenant.held_ns == shares[name] * n_leases * LEASE


@RUN
@given(claims(), st.integers(0, 3 * LEASE), st.integers(0, LEASE // 25))
def test_leases_that_end_a_little_late_leave_every_plan_within_half_a_lease(
    found: list[Claim], first: int, late: int
) -> None:
    card, name = card_of(found), found[0].name
    card.grant(name, 0)
    card.end(first)
    for _ in range(1000):
        n_plans, grant = card.n_plans, card.pick(card.now_ns)
        if card.n_plans > max(n_plans, 3):
            for tenant in card.tenants.values():
                due, held = 20 * tenant.share, Fraction(tenant.held_last_plan_ns, LEASE)
                assert floor(due) - Fraction(1, 2) <= held <= ceil(due) + Fraction(1, 2)
        card.end(grant.end_ns + (late if grant.name == name else 0))


steps = st.lists(
    st.tuples(
        st.integers(0, 5),  # the tenant that changes between busy and idle; above the last: none
        st.integers(1, 2 * LEASE),  # how long the holder keeps the card
        st.booleans(),  # whether a tenant changes at all
    ),
    min_size=50,
    max_size=150,
)


@RUN
@given(claims(), steps)
def test_whatever_happens_time_is_conserved_and_nobody_holds_more_than_due_and_a_little(
    found: list[Claim], script: list[tuple[int, int, bool]]
) -> None:
    card = card_of(found)
    for who, took, is_change in script:
        grant = card.pick(card.now_ns)
        assert not grant.name or card.tenants[grant.name].is_busy
        card.end(card.now_ns + (took if grant.name else LEASE))
        name = f"t{who}"
        if is_change and name in card.tenants:
            card.set_busy(name, not card.tenants[name].is_busy, card.now_ns)
    held = sum(tenant.held_ns for tenant in card.tenants.values())
    assert 0 <= held <= card.now_ns
    for tenant in card.tenants.values():
        if tenant.claim.limit == tenant.claim.request and tenant.share:
            assert tenant.held_ns <= tenant.due_ns + 4 * LEASE


@RUN
@given(claims(is_strict=True), st.integers(1, 40))
def test_in_strict_mode_nobody_is_above_its_limit_in_any_plan(found: list[Claim], off: int) -> None:
    """Any stretch of a plan's length: the leases of the limit, and one due from before."""
    found = [claim for claim in found if claim.request]
    assume(found)
    card = card_of(found)
    names = list[str]()
    for at in range(200):
        names.append(card.pick(at * LEASE).name)
        card.end((at + 1) * LEASE)
    for claim in found:
        for start in range(off, len(names) - 20):
            count = names[start : start + 20].count(claim.name)
            assert count <= ceil(20 * claim.limit) + (1 if start % 20 else 0)


@RUN
@given(claims(is_strict=False), steps)
def test_in_fair_mode_the_card_never_idles_while_somebody_without_limit_wants_it(
    found: list[Claim], script: list[tuple[int, int, bool]]
) -> None:
    card = card_of(found)
    for who, took, is_change in script:
        grant = card.pick(card.now_ns)
        wanting = [each for each in card.tenants.values() if each.is_busy and each.claim.limit == 1]
        assert grant.name or not wanting
        card.end(card.now_ns + (took if grant.name else LEASE))
        if is_change and f"t{who}" in card.tenants:
            is_busy = card.tenants[f"t{who}"].is_busy
            card.set_busy(f"t{who}", not is_busy, card.now_ns)


@RUN
@given(claims())
def test_nobody_starves(found: list[Claim]) -> None:
    card = card_of(found)
    last = {name: 0 for name, tenant in card.tenants.items() if tenant.share}
    gaps = dict.fromkeys(last, 0)
    for at in range(400):
        name = card.pick(at * LEASE).name
        card.end((at + 1) * LEASE)
        if name:
            gaps[name] = max(gaps[name], at - last[name])
            last[name] = at
    for name, gap in gaps.items():
        longest = max(gap, 400 - last[name])
        assert longest <= 2 / card.tenants[name].share + 20


def play(found: list[Claim], script: list[tuple[int, int, bool]], is_ahead: bool) -> Card:
    """Leases that end late by as much as the script says, decided ahead or at their beginnings."""
    node = Node(LeaseSettings(lease_ns=1000 * LEASE))
    for claim in found:
        assert node.admit(claim, ("x",), 0) == ""
        node.set_busy(claim.name, True, 0)
    card, turn = node.cards["x"], None
    for who, late, is_change in script:
        if turn is not None and turn.terms is not None:
            card.begin(turn.terms, card.now_ns)
        else:
            node.pick("x", card.now_ns)
        assert card.holder is not None
        name, end_ns = f"t{who}", card.holder.end_ns + late
        if is_change and name in card.tenants:
            node.set_busy(name, not card.tenants[name].is_busy, card.now_ns)
        turn = foresee(node, "x", card.now_ns, is_closed=False) if is_ahead else None
        node.end("x", end_ns)
    return card


@RUN
@given(claims(), steps)
def test_leases_that_are_decided_ahead_are_dealt_like_others(
    found: list[Claim], script: list[tuple[int, int, bool]]
) -> None:
    then, ahead = (play(found, script, is_ahead) for is_ahead in (False, True))
    lease_ns = then.settings.lease_ns
    assert sum(each.held_ns for each in ahead.tenants.values()) <= ahead.now_ns
    for name, tenant in ahead.tenants.items():
        assert abs(tenant.held_ns - then.tenants[name].held_ns) <= 3 * lease_ns
