"""A1, A2, A5: no card is allocated twice, and bound rows do not change.

A1: on each card the reserved and bound rows of live pods hold at most 1000 milli and at most the
card's MiB. `nominated` rows do not count in this sum, since their victims still hold the card. Two
rules ensure that rows do not overlap once the victims are gone: the nominated rows of a card fit on
it together, and a new reservation leaves room for the nominated rows of other pods.

A2: a row of a whole card has that card to itself.

A5: a bound row's cards and node do not change. A row that keeps a place for the pod's successor is
a separate row and may be removed.
"""

from collections import defaultdict
from collections.abc import Iterator

from tests.support.auditor.rules.rule import Finding, Rule
from tests.support.auditor.sight import MILLI, LedgerSeen, RowSeen, Share
from tests.support.auditor.world import HOLDING, Step, World

#: (row, its share of one card)
Claim = tuple[RowSeen, Share]


class Cards(Rule):
    """Judges A1 and A2 at every revision of a GpuNode, and A5 between two revisions."""

    def on_step(self, world: World, step: Step) -> Iterator[Finding]:
        if step.change.kind != "GpuNode":
            return
        before = step.before if isinstance(step.before, LedgerSeen) else None
        if isinstance(step.after, LedgerSeen):
            yield from self.fresh(step.after.name, _overfull(world, step.after))
            yield from _crowded_out(world, before, step.after)
            if before is not None:
                yield from _moved(world, before, step.after)

    def on_baseline(self, world: World) -> Iterator[Finding]:
        for ledger in world.ledgers.values():
            yield from self.fresh(ledger.name, _overfull(world, ledger))


def _overfull(world: World, ledger: LedgerSeen) -> Iterator[Finding]:
    held: dict[int, list[Claim]] = defaultdict(list)
    nominated: dict[int, list[Claim]] = defaultdict(list)
    for row in ledger.rows:
        if world.is_live(row.uid):
            for share in row.cards:
                (held if row.state in HOLDING else nominated)[share.index].append((row, share))
    for index in sorted(held):
        yield from _card_findings(ledger, index, held[index])
    for index, claims in sorted(nominated.items()):
        if _milli(claims) > MILLI:
            yield Finding(
                "A1",
                _card(ledger, index),
                f"nominated rows claim {_milli(claims)} of {MILLI} milli: {_names(claims)}",
            )


def _card_findings(ledger: LedgerSeen, index: int, claims: list[Claim]) -> Iterator[Finding]:
    card = _card(ledger, index)
    if _milli(claims) > MILLI:
        yield Finding("A1", card, f"{_milli(claims)} of {MILLI} milli held by {_names(claims)}")
    mib = sum(share.mib for _, share in claims)
    device = ledger.devices.get(index)
    if device is None and ledger.devices:
        yield Finding("A1", card, f"rows on a card that the node does not have: {_names(claims)}")
    elif device is not None and mib > device.memory_mib > 0:
        yield Finding("A1", card, f"{mib} of {device.memory_mib} MiB held by {_names(claims)}")
    if len(claims) > 1 and any(share.milli >= MILLI for _, share in claims):
        yield Finding("A2", card, f"a whole card is shared by {_names(claims)}")


def _crowded_out(world: World, before: LedgerSeen | None, after: LedgerSeen) -> Iterator[Finding]:
    """New reservations that leave no room for another pod's nominated row on the card."""
    known = {row.uid for row in before.rows} if before else set()
    for row in after.rows:
        if row.uid in known or not world.holds(row):
            continue
        for share in row.cards:
            others = [
                (other, place)
                for other in after.rows
                if other.state == "nominated" and other.uid != row.uid and world.is_live(other.uid)
                for place in other.cards
                if place.index == share.index
            ]
            if others and share.milli + _milli(others) > MILLI:
                yield Finding(
                    "A1",
                    _card(after, share.index),
                    f"{row.key} reserved {share.milli} milli of the place that is held for"
                    f" {_names(others)}",
                )


def _moved(world: World, before: LedgerSeen, after: LedgerSeen) -> Iterator[Finding]:
    cards_now = {row.uid: row.cards for row in after.rows}
    for row in before.rows:
        pod = world.pods_by_uid.get(row.uid)
        if pod is None or row.keeps_for or (row.state != "bound" and not pod.node):
            continue
        cards = cards_now.get(row.uid)
        if cards is not None and cards != row.cards:
            yield Finding(
                "A5",
                f"Pod {row.key}",
                f"bound to {_shares(row.cards)} of {after.name}, now {_shares(cards)}",
            )
        elsewhere = [node for node in world.row_nodes.get(row.uid, ()) if node != after.name]
        if cards is None and elsewhere and not pod.has_ended:
            yield Finding(
                "A5",
                f"Pod {row.key}",
                f"bound on {after.name}, its row is now on {', '.join(sorted(elsewhere))}",
            )


def _card(ledger: LedgerSeen, index: int) -> str:
    return f"GpuNode {ledger.name}/gpu{index}"


def _milli(claims: list[Claim]) -> int:
    return sum(share.milli for _, share in claims)


def _names(claims: list[Claim]) -> str:
    return ", ".join(f"{row.key} ({share.milli})" for row, share in claims)


def _shares(cards: tuple[Share, ...]) -> str:
    return ", ".join(f"gpu{share.index}:{share.milli}:{share.mib}" for share in cards)
