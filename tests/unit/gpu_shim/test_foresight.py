"""Decisions made ahead equal later ones, and looking ahead changes no account."""

from fractions import Fraction

from gpu_shim.policy.foresight import Turn, foresee
from gpu_shim.policy.gangs import Node
from gpu_shim.policy.leases import LeaseSettings, LeaseTerms
from gpu_shim.policy.shares import Claim

MS = 1_000_000
LEASE = 250 * MS


def node_of(*tenants: tuple[str, str, str, str]) -> Node:
    """A node with busy tenants only: name, request, limit, and cards by letter."""
    node = Node(LeaseSettings())
    for name, request, limit, cards in tenants:
        claim = Claim(name, Fraction(request), Fraction(limit))
        assert node.admit(claim, tuple(cards), 0) == ""
        node.set_busy(name, True, 0)
    return node


def ahead(node: Node, now_ns: int = 0, is_closed: bool = False) -> Turn:
    turn = foresee(node, "x", now_ns, is_closed)
    assert turn is not None
    return turn


def test_the_next_of_two_is_foreseen_with_the_lease_it_will_have() -> None:
    node = node_of(("a", "1/2", "1", "x"), ("b", "1/2", "1", "x"))
    node.pick("x", 0)
    turn = ahead(node)
    assert (turn.holder, turn.close_ns, turn.is_renewal) == ("a", LEASE, False)
    assert turn.terms == LeaseTerms("b", LEASE, 0, is_contended=True)


def test_a_tenant_that_goes_on_is_not_closed_in_between() -> None:
    node = node_of(("a", "1/4", "1", "x"), ("b", "3/4", "1", "x"))
    leases = list[str]()
    renewals = 0
    for at in range(20):
        (grant,) = node.pick("x", at * LEASE).values()
        turn = ahead(node, at * LEASE)
        assert turn.terms is not None
        leases.append(grant.name)
        renewals += turn.is_renewal
        assert turn.is_renewal == (turn.terms.name == grant.name)
        node.end("x", (at + 1) * LEASE)
    assert leases.count("a") == 5
    assert renewals > 5


def test_asking_changes_no_account() -> None:
    node = node_of(("a", "1/4", "1", "x"), ("b", "3/4", "1", "x"))
    node.pick("x", 0)
    card = node.cards["x"]
    before = card.copied()
    ahead(node, 100 * MS)
    assert card == before


def test_once_closed_the_holder_is_asked_for_like_everybody() -> None:
    node = node_of(("a", "3/4", "1", "x"), ("b", "1/4", "1", "x"))
    node.pick("x", 0)
    turn = ahead(node, LEASE, is_closed=True)
    assert not turn.is_renewal
    assert turn.terms is not None


def test_a_tenant_that_drains_long_is_stopped_earlier_next_time_too() -> None:
    node = node_of(("a", "1/2", "1", "x"), ("b", "1/2", "1", "x"))
    node.cards["x"].tenants["b"].drain_ns = 8 * MS
    node.pick("x", 0)
    turn = ahead(node)
    assert turn.terms is not None
    assert turn.terms.early_ns == 8 * MS
    grant = node.cards["x"].begin(turn.terms, LEASE)
    assert (grant.until_ns, grant.end_ns) == (2 * LEASE - 8 * MS, 2 * LEASE)


def test_no_turn_is_foreseen_where_no_lease_is_next() -> None:
    node = node_of(("a", "1/2", "1/2", "x"))
    assert node.pick("x", 0)["x"].name == "a"
    turn = ahead(node)
    assert turn.terms is None
    assert turn.close_ns == LEASE


def test_nothing_is_foreseen_of_a_free_card_or_one_of_a_gang() -> None:
    node = node_of(("g", "1", "1", "xy"))
    assert foresee(node, "x", 0, is_closed=False) is None
    node.pick("x", 0)
    assert foresee(node, "x", 0, is_closed=False) is None


def test_a_gang_that_is_next_is_left_to_be_decided() -> None:
    node = node_of(("a", "1/2", "1", "x"), ("g", "1/2", "1", "xy"))
    names = set[str]()
    for at in range(8):
        names.add(node.pick("x", at * LEASE)["x"].name)
        turn = foresee(node, "x", at * LEASE, is_closed=False)
        assert turn is None or turn.terms is None or turn.terms.name == "a"
        for card in "xy":
            node.end(card, (at + 1) * LEASE)
    assert names == {"a", "g"}


def test_what_comes_later_than_an_eighth_of_a_lease_is_decided_anew() -> None:
    node = node_of(("a", "1/2", "1", "x"), ("b", "1/2", "1", "x"))
    node.pick("x", 0)
    assert ahead(node).latest_ns == LEASE + LEASE // 8
