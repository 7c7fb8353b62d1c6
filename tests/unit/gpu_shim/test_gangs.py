"""Tenants with several cards get them at the same time."""

from fractions import Fraction

from gpu_shim.policy.gangs import Node
from gpu_shim.policy.leases import LeaseSettings
from gpu_shim.policy.shares import Claim

MS = 1_000_000


def node_of(*tenants: tuple[str, str, str]) -> Node:
    """A node whose tenants are all busy: name, request, and its cards by letter."""
    node = Node(LeaseSettings())
    for name, request, cards in tenants:
        assert node.admit(Claim(name, Fraction(request), Fraction(1)), tuple(cards), 0) == ""
        node.set_busy(name, True, 0)
    return node


def play(node: Node, until_ms: int) -> dict[str, int]:
    """Run leases; milliseconds in which each gang held only a part of its cards."""
    now, split_ms = 0, dict.fromkeys((n for n, c in node.cards_of.items() if len(c) > 1), 0)
    while now < until_ms * MS:
        for name, card in node.cards.items():
            if card.holder is not None and card.holder.until_ns <= now:
                node.end(name, now)
        for name, card in node.cards.items():
            if card.holder is None:
                node.pick(name, now)
        following = min(card.holder.until_ns for card in node.cards.values() if card.holder)
        for gang in split_ms:
            holds = [node.cards[at].holder for at in node.cards_of[gang]]
            if len({hold is not None and hold.name == gang for hold in holds}) > 1:
                split_ms[gang] += (following - now) // MS
        now = following
    for card in node.cards.values():
        card.advance(now)
    return split_ms


def share(node: Node, name: str, card: str) -> float:
    return node.cards[card].tenants[name].held_ns / node.cards[card].now_ns


def test_a_gang_never_holds_a_part_of_its_cards() -> None:
    node = node_of(("g", "1/2", "xy"), ("a", "1/2", "x"), ("b", "1/2", "y"))
    assert play(node, 30_000) == {"g": 0}
    assert abs(share(node, "g", "x") - 0.5) < 0.02
    assert abs(share(node, "g", "y") - 0.5) < 0.02
    assert abs(share(node, "a", "x") - 0.5) < 0.02


def test_a_gang_gets_the_share_of_its_scarcest_card_on_all_cards_and_others_the_remainder() -> None:
    node = node_of(("g", "1/4", "xy"), ("a", "3/4", "x"))
    assert play(node, 30_000) == {"g": 0}
    assert abs(share(node, "g", "x") - 0.25) < 0.02
    assert abs(share(node, "g", "y") - 0.25) < 0.02


def test_overlapping_gangs_do_not_block_one_another() -> None:
    node = node_of(("g", "1/3", "xy"), ("h", "1/3", "yz"), ("i", "1/3", "zx"))
    assert play(node, 60_000) == {"g": 0, "h": 0, "i": 0}
    for gang, card in (("g", "x"), ("h", "y"), ("i", "z")):
        assert share(node, gang, card) > 0.25


def test_a_gang_is_not_starved_by_singles_on_its_cards() -> None:
    node = node_of(
        ("g", "1/5", "xyz"),
        ("a", "4/5", "x"),
        ("b", "1/2", "y"),
        ("c", "3/10", "y"),
        ("d", "0", "z"),
    )
    assert play(node, 60_000) == {"g": 0}
    assert abs(share(node, "g", "x") - 0.2) < 0.03


def test_a_gang_that_does_not_fit_on_one_card_is_on_none() -> None:
    node = node_of(("a", "2/3", "y"))
    assert "y" in node.admit(Claim("g", Fraction(1, 2), Fraction(1)), ("x", "y"), 0)
    assert not node.cards["x"].tenants


def test_a_gang_that_leaves_frees_all_its_cards() -> None:
    node = node_of(("g", "1", "xy"))
    node.pick("x", 0)
    node.remove("g", 10 * MS)
    assert all(card.holder is None and not card.tenants for card in node.cards.values())


def test_a_tenant_that_is_back_has_its_card_from_a_gang_a_lease_ahead_which_ends_on_all() -> None:
    node = node_of(("g", "1/2", "xy"), ("a", "1/2", "x"))
    lease = node.cards["x"].lease_ns
    node.pick("x", 0)
    for card in "xy":
        node.end(card, 3 * lease)
    node.set_busy("a", False, 3 * lease)
    node.pick("x", 3 * lease)
    node.set_busy("a", True, 3 * lease + MS)
    node.take_back("a", 3 * lease + MS)
    ends = {card: held.until_ns for card in "xy" if (held := node.cards[card].holder) is not None}
    assert ends == dict.fromkeys("xy", 3 * lease + MS)


def test_a_tenant_that_is_back_waits_for_one_that_is_not_ahead() -> None:
    node = node_of(("a", "1/2", "x"), ("b", "1/2", "x"))
    other = "ab"[node.pick("x", 0)["x"].name == "a"]
    node.set_busy(other, False, MS)
    node.set_busy(other, True, 2 * MS)
    node.take_back(other, 2 * MS)
    held = node.cards["x"].holder
    assert held is not None
    assert held.until_ns == node.cards["x"].lease_ns
