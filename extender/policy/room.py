"""The cheapest way to make room for one pod on one node by evicting others.

Cards are freed one after the other, the cheapest first; then pods for CPU, memory and slots if they
are what lacks; then everything that turned out not to be needed is put back.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from extender.api.demand import Demand
from extender.api.units import MILLI_PER_GPU, share_milli
from extender.policy.victims import Claim, Draft, Victim
from extender.state.model import PodView
from extender.state.nodes import NodeTable

Entry = tuple[Victim, PodView]


@dataclass(slots=True)
class _Room:
    """What the node would have free after the pods of a draft have left."""

    node: str
    demand: Demand
    need_milli: int
    free: list[int]
    cpu_milli: int
    memory_mib: int
    slots: int

    def add(self, pods: Iterable[PodView], sign: int = 1) -> None:
        """The pods leave (or, with sign -1, stay after all); those of other nodes don't matter."""
        for pod in pods:
            if pod.node != self.node:
                continue
            for card in pod.cards:
                if card.index < len(self.free):
                    self.free[card.index] += sign * card.milli
            self.cpu_milli += sign * pod.demand.cpu_milli
            self.memory_mib += sign * pod.demand.memory_mib
            self.slots += sign

    def has_cards(self) -> bool:
        """Whether enough cards have what is needed."""
        if self.demand.devices and self.need_milli > MILLI_PER_GPU:
            return False
        return sum(milli >= self.need_milli for milli in self.free) >= self.demand.devices

    def fits(self) -> bool:
        """Whether the pod fits."""
        demand = self.demand
        return (
            self.slots >= 1
            and (demand.cpu_milli == 0 or self.cpu_milli >= demand.cpu_milli)
            and (demand.memory_mib == 0 or self.memory_mib >= demand.memory_mib)
            and self.has_cards()
        )


def make_room(
    later: NodeTable, ix: int, demand: Demand, entries: Sequence[Entry], claim: Claim
) -> Draft | None:
    """The cheapest draft found that makes `demand` fit on node `ix`, minimal in itself, or None.

    `entries` are the victims' pods on the node, the cheapest first.
    """
    if not _could_fit(_room_of(later, ix, demand), entries):
        return None
    best: Draft | None = None
    # Order matters where a queue may give only so much; by size is the second try.
    for listed in (entries, sorted(entries, key=lambda entry: -entry[1].held_milli)):
        best = _free_cards(_room_of(later, ix, demand), listed, claim)
        if best is not None:
            break
    if best is not None and len(best.freed) == 1:
        return best
    room = _room_of(later, ix, demand)
    missing = demand.devices * room.need_milli - sum(milli for milli in room.free if milli > 0)
    for victim, pod in entries:
        # One unit that suffices alone may be cheaper than several that do together.
        alone = Draft(claim)
        if not alone.take(victim, pod) or alone.units[victim].milli < missing:
            continue
        if best is None or alone.cost < best.cost:
            room.add(alone.units[victim].pods)
            best = alone if room.fits() else best
            room.add(alone.units[victim].pods, -1)
    return best


def _need_of(demand: Demand, card_mib: int) -> int:
    """Milli wanted of each card; above 1000 where the node's cards are too small."""
    return share_milli(demand.gpu_memory_mib, card_mib) if demand.gpu_memory_mib else demand.milli


def _room_of(later: NodeTable, ix: int, demand: Demand) -> _Room:
    return _Room(
        later.cards.names[ix],
        demand,
        _need_of(demand, later.cards.card_mib[ix]),
        list(later.cards.free_of(ix)),
        later.free_cpu_milli[ix],
        later.free_memory_mib[ix],
        later.free_pods[ix],
    )


def _could_fit(room: _Room, entries: Iterable[Entry]) -> bool:
    """Whether evicting everything would do: the cheap and exact no."""
    room.add(pod for _, pod in entries)
    return room.fits()


def _free_cards(room: _Room, entries: Sequence[Entry], claim: Claim) -> Draft | None:
    draft = Draft(claim)
    on_card = _by_card(entries, len(room.free))
    heap = [
        (cost, card)
        for card, free in enumerate(room.free)
        if free < room.need_milli
        and (cost := _card_cost(room, on_card[card], draft, card)) is not None
    ]
    heapify(heap)
    # What is taken makes other cards no cheaper, so a popped cost that still holds is the least.
    while heap and not room.has_cards():
        known, card = heappop(heap)
        cost = _card_cost(room, on_card[card], draft, card) if draft.units else known
        if cost is None or room.free[card] >= room.need_milli:
            continue
        if cost > known:
            heappush(heap, (cost, card))
            continue
        for victim, pod, _ in on_card[card]:
            if room.free[card] >= room.need_milli:
                break
            _take(draft, room, victim, pod)
    for victim, pod in entries:
        if not room.has_cards() or room.fits():
            break
        _take(draft, room, victim, pod)
    return _trim(draft, room) if room.fits() else None


def _take(draft: Draft, room: _Room, victim: Victim, pod: PodView) -> None:
    before = set(draft.freed)
    if draft.take(victim, pod):
        room.add(p for p in draft.units[victim].pods if p.uid not in before)


def _by_card(entries: Sequence[Entry], n_cards: int) -> list[list[tuple[Victim, PodView, int]]]:
    """The entries on each card with the milli they hold of it, in the same order."""
    on_card: list[list[tuple[Victim, PodView, int]]] = [[] for _ in range(n_cards)]
    for victim, pod in entries:
        for share in pod.cards:
            if share.index < n_cards:
                on_card[share.index].append((victim, pod, share.milli))
    return on_card


def _card_cost(
    room: _Room, holders: Sequence[tuple[Victim, PodView, int]], draft: Draft, card: int
) -> tuple[int, bool, int, int] | None:
    """What freeing the card costs on top of the draft: (tier, whole, lost, pods), or None."""
    freed, worst, is_whole, lost, count = room.free[card], 0, False, 0, 0
    for victim, pod, milli in holders:
        if freed >= room.need_milli:
            break
        if pod.uid in draft.freed:
            continue
        tier = draft.claim.tier_of(victim.project, draft.queues)
        if tier is None or victim.is_barred:
            continue
        unit = draft.units.get(victim)
        is_core = victim.n_surplus <= (len(unit.pods) if unit else 0)
        freed += milli
        worst, count = max(worst, tier[0]), count + 1
        is_whole = is_whole or is_core
        lost += sum(victim.lost.values()) if is_core else victim.lost[pod.uid]
    return (worst, is_whole, lost, count) if freed >= room.need_milli else None


def _trim(draft: Draft, room: _Room) -> Draft:
    """The draft without what is not needed, the dearest put back first: then it is minimal."""
    groups: list[tuple[Victim, list[PodView]]] = []
    for unit in draft.units.values():
        if unit.is_core:
            groups.append((unit.victim, unit.pods))
        else:
            groups.extend((unit.victim, [pod]) for pod in unit.pods)
    if len(groups) == 1:
        return draft
    kept = []
    groups.sort(key=lambda group: -sum(group[0].lost[pod.uid] for pod in group[1]))
    for victim, pods in groups:
        room.add(pods, -1)
        if not room.fits():
            room.add(pods)
            kept.append((victim, pods))
    if len(kept) == len(groups):
        return draft
    trimmed = Draft(draft.claim)
    for victim, pods in reversed(kept):
        for pod in pods:
            trimmed.take(victim, pod)
    return trimmed
