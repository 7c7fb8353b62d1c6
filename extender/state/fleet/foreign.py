"""Pods that hold cards without a row: another scheduler, or kubelet itself, placed them.

A pod is foreign when it is bound, requests cards, and neither the ledger nor our Binding gave it
any. Its cards are subtracted from its node and charged to no queue. A bound pod with claims that
requested no card at admission is kept here too, because its claims may hold cards now. A mirror pod
is always foreign, because the owner of a node can make one in any namespace.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, structs

from extender.api.demand import MAX_DEVICES
from extender.api.kinds import CardShare, Device, ForeignHold, Row
from extender.api.ledger import read_cards
from extender.api.units import MILLI_PER_GPU, share_milli
from extender.state.fleet.device_cards import ClaimedCards
from extender.state.pods.facts import PodFacts


def is_foreign(facts: PodFacts, row: Row | None) -> bool:
    """Whether the pod holds cards that Ballast did not give it; `row` is its row on its node."""
    if not facts.node:
        return False
    if facts.is_mirror or (facts.has_read_claims and not facts.demand.is_gpu_work):
        return True
    asks = facts.demand.wants_gpu or facts.plugin_cards > 0
    return asks and row is None and not was_given(facts)


class ForeignPod(Struct, frozen=True):
    """A pod that holds `n_cards` without a row, or beyond its row.

    `is_managed`: a project lists its namespace, so its GPUs should come from Ballast.
    `is_beyond_row`: its claims hold more cards than its row, or it has no row. `is_unwanted`: it is
    beyond its row, or its node pool evicts foreign pods. An evicted one has `grace_s` to end.
    """

    facts: PodFacts
    n_cards: int
    is_managed: bool
    is_beyond_row: bool
    is_unwanted: bool
    grace_s: int


class ForeignPods:
    """Facts of all foreign pods, by UID and by node."""

    def __init__(self) -> None:
        self._facts: dict[str, PodFacts] = {}
        self._on_node: dict[str, dict[str, PodFacts]] = {}

    @property
    def facts(self) -> Mapping[str, PodFacts]:
        """By UID. Callers must not change it."""
        return self._facts

    def set_pod(self, facts: PodFacts) -> None:
        """Store the foreign pod."""
        self.drop_pod(facts.uid)
        self._facts[facts.uid] = facts
        self._on_node.setdefault(facts.node, {})[facts.uid] = facts

    def drop_pod(self, uid: str) -> str:
        """Forget the pod; returns its node, or empty if it was not known."""
        facts = self._facts.pop(uid, None)
        if facts is None:
            return ""
        pods = self._on_node[facts.node]
        del pods[uid]
        if not pods:
            del self._on_node[facts.node]
        return facts.node

    def holds_on(self, node: str) -> list[ForeignHold]:
        """What foreign pods on the node request, by name; it may be more than the node has."""
        pods = sorted(self._on_node.get(node, {}).values(), key=_by_name)
        return [
            ForeignHold(uid=pod.uid, namespace=pod.namespace, name=pod.name, gpus=pod.plugin_cards)
            for pod in pods
        ]

    def has_read_claims(self, uid: str) -> bool:
        """Whether the pod is foreign and names claims that the webhook has read."""
        return uid in self._facts and self._facts[uid].has_read_claims

    def holders(self) -> Iterable[PodFacts]:
        """Foreign pods that hold cards, by UID."""
        return (self._facts[uid] for uid in sorted(self._facts) if self._facts[uid].plugin_cards)

    def validate(self) -> None:
        """Assert that both indices hold the same pods."""
        by_node = {uid: facts for pods in self._on_node.values() for uid, facts in pods.items()}
        assert by_node == self._facts
        assert all(self._on_node.values())


def beyond_rows(claimed: Iterable[ClaimedCards], rows: Iterable[Row]) -> list[ClaimedCards]:
    """What claims hold beyond the rows of their pods."""
    of_row = {row.uid: row.cards for row in rows}
    found = []
    for each in claimed:
        cards = of_row.get(each.uid, ())
        beyond = len(each.devices) - len(cards)
        more_mib = sum(mib for _, mib in each.devices) - sum(card.memory_mib for card in cards)
        if beyond > 0:
            found.append(structs.replace(each, devices=each.devices[-beyond:]))
        elif more_mib > 0:
            found.append(structs.replace(each, devices=((each.devices[-1][0], more_mib),)))
    return found


def merged_holds(
    pods: Iterable[ForeignHold],
    claimed: Sequence[ClaimedCards],
    rows: Iterable[Row],
    devices: Sequence[Device],
) -> tuple[ForeignHold, ...]:
    """What claims and foreign pods hold without a row, on a node with these cards.

    Whole cards are counted in list order, up to the number of cards. A pod with known claims counts
    by its claims only.
    """
    holders, n_cards = {each.uid for each in claimed}, len(devices)
    listed = [_hold_of(each, devices) for each in beyond_rows(claimed, rows)]
    listed += [hold for hold in pods if hold.uid not in holders]
    found = []
    for hold in listed:
        gpus = min(hold.gpus, n_cards)
        if gpus > 0 or hold.cards:
            found.append(structs.replace(hold, gpus=gpus))
            n_cards -= gpus
    return tuple(found[:MAX_DEVICES])


def _hold_of(claimed: ClaimedCards, devices: Sequence[Device]) -> ForeignHold:
    """What a pod holds by claims. A share of an unlisted card counts as a whole card."""
    known = {each.device: each for each in devices}
    shares = []
    for name, mib in claimed.devices:
        card = known.get(name)
        if mib and card is not None:
            milli = min(MILLI_PER_GPU, share_milli(mib, card.memory_mib))
            shares.append(CardShare(card.index, milli, mib))
    return ForeignHold(
        uid=claimed.uid,
        namespace=claimed.namespace,
        name=claimed.name,
        gpus=len(claimed.devices) - len(shares),
        cards=shares,
    )


def was_given(facts: PodFacts) -> bool:
    """Whether a Binding gave the pod the cards that it requests. For MIG instances no cards are
    written: then the pod has to be on the node that its plan names."""
    cards, demand = read_cards(facts.written_cards), facts.demand
    if demand.counted and not demand.devices:
        return facts.plan.partition(" ")[2] == facts.node
    if not cards or len(cards) != demand.devices:
        return False
    return demand.milli == 0 or all(card.milli == demand.milli for card in cards)


def _by_name(facts: PodFacts) -> tuple[str, str, str]:
    return facts.namespace, facts.name, facts.uid
