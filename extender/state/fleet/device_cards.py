"""Cards of dynamic resource allocation: the cards of each node, and what pods hold of them.

Published devices are one flat list per node: whole cards in order of their names, shared ones in
the order in which kube-scheduler, which picks the devices, looks at them (`GatherPools`). Where a
claim gets whole cards, an index in a row stands for any one of the node's cards; the allocation of
the claim says which device the pod has. Where claims share cards, the extender writes the card into
the row (`extender.ledger.seating`).

A node gives either whole cards or shares: if it has any whole card, its shared ones do not count.
"""

import re
from collections.abc import Iterable
from typing import Final, TypeVar

from msgspec import Struct

from extender.api.claimed_memory import MEMORY, MemorySteps, memory_steps
from extender.api.claims import (
    AllocatedDevice,
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
    SliceDevice,
    device_id,
    driver_of_cards,
)
from extender.api.demand import MAX_DEVICES, Delivery
from extender.api.kinds import Device
from extender.api.names import NVIDIA_GPU
from extender.api.units import UnitError, parse_memory, parse_memory_floor
from extender.state.nodes import BY_CLAIM, BY_CLAIM_OR_RESOURCE, BY_NODE, BY_SHARE

_NUMBER: Final = re.compile(r"([0-9]+)")
K = TypeVar("K")


class ClaimedCards(Struct, frozen=True, order=True):
    """Cards of one node that are allocated to one pod; `uid` is the claim's if no pod reserves it.

    `devices` are pairs of a card's name and the MiB held of it, 0 for a whole card.
    """

    namespace: str
    name: str
    uid: str
    devices: tuple[tuple[str, int], ...]


class _Class(Struct, frozen=True):
    uid: str
    driver: str
    resource: str


class _Slice(Struct, frozen=True):
    name: str
    node: str
    driver: str
    pool: str
    generation: int
    cards: tuple[SliceDevice, ...]
    shared: tuple[SliceDevice, ...]
    others: frozenset[str]


class _Claim(Struct, frozen=True):
    holder: tuple[str, str, str]
    devices: tuple[AllocatedDevice, ...]


class DeviceCards:
    """DeviceClasses, the ResourceSlices of nodes, and the allocated ResourceClaims.

    Methods that change something return the nodes that may be affected.
    """

    def __init__(self) -> None:
        self._classes: dict[str, _Class] = {}
        self._slices: dict[str, _Slice] = {}
        self._of_node: dict[str, set[str]] = {}
        self._of_pool: dict[tuple[str, str], set[str]] = {}
        self._claims: dict[str, _Claim] = {}
        self._claims_of_pool: dict[tuple[str, str], set[str]] = {}

    # -- changes -----------------------------------------------------------------------------

    def set_class(self, device_class: DeviceClass) -> Iterable[str]:
        """Store the class: which driver's cards it selects, and its extended resource name."""
        meta, driver = device_class.metadata, driver_of_cards(device_class) or ""
        found = _Class(meta.uid, driver, device_class.spec.extended_resource_name)
        if self._classes.get(meta.name) == found:
            return ()
        self._classes[meta.name] = found
        return list(self._of_node)

    def drop_class(self, name: str, uid: str) -> Iterable[str]:
        """Forget the class of this UID; does nothing if it is not known."""
        known = self._classes.get(name)
        if known is None or known.uid != uid:
            return ()
        del self._classes[name]
        return list(self._of_node)

    def set_slice(self, published: ResourceSlice) -> Iterable[str]:
        """Store the slice; one without a node name gives no cards."""
        spec, uid = published.spec, published.metadata.uid
        touched = set(self.drop_slice(uid))
        if not spec.node_name:
            return touched
        devices = spec.devices or ()
        known = _Slice(
            published.metadata.name,
            spec.node_name,
            spec.driver,
            spec.pool.name,
            spec.pool.generation,
            tuple(device for device in devices if device.is_card),
            tuple(device for device in devices if _steps(device) is not None),
            frozenset(
                device.name for device in devices if not device.is_card and _steps(device) is None
            ),
        )
        self._slices[uid] = known
        self._of_node.setdefault(known.node, set()).add(uid)
        self._of_pool.setdefault((known.driver, known.pool), set()).add(uid)
        return touched | {known.node}

    def drop_slice(self, uid: str) -> Iterable[str]:
        """Forget the slice; does nothing if it is not known."""
        known = self._slices.pop(uid, None)
        if known is None:
            return ()
        _discard(self._of_node, known.node, uid)
        _discard(self._of_pool, (known.driver, known.pool), uid)
        return (known.node,)

    def set_claim(self, claim: ResourceClaim) -> Iterable[str]:
        """Store what is allocated to the claim."""
        meta, status = claim.metadata, claim.status
        touched = set(self.drop_claim(meta.uid))
        results = (status.allocation.devices.results if status.allocation else None) or ()
        devices = tuple(each for each in results if not each.admin_access)
        if not devices:
            return touched
        pods = [each for each in status.reserved_for or () if each.resource == "pods"]
        holder = (meta.namespace, meta.name, meta.uid)
        if pods:
            holder = (meta.namespace, pods[0].name, pods[0].uid)
        self._claims[meta.uid] = _Claim(holder, devices)
        for pool in {(each.driver, each.pool) for each in devices}:
            self._claims_of_pool.setdefault(pool, set()).add(meta.uid)
        return touched | self._nodes_of(devices)

    def drop_claim(self, uid: str) -> Iterable[str]:
        """Forget the claim; does nothing if nothing is allocated to it."""
        known = self._claims.pop(uid, None)
        if known is None:
            return ()
        for pool in {(each.driver, each.pool) for each in known.devices}:
            _discard(self._claims_of_pool, pool, uid)
        return self._nodes_of(known.devices)

    # -- questions ---------------------------------------------------------------------------

    def cards_of(self, node: str) -> tuple[Device, ...]:
        """The cards that drivers publish for the node, from each pool's newest generation.

        Cards beyond `MAX_DEVICES` are ignored.
        """
        given = self._given_by(node)
        are_shared = self._are_shared(given)
        given.sort(key=lambda each: (each.driver, each.pool, each.name))
        cards = [
            (each, card) for each in given for card in (each.shared if are_shared else each.cards)
        ]
        if not are_shared:
            cards.sort(key=lambda card: (card[0].driver, card[0].pool, _natural(card[1].name)))
        return tuple(
            _device(ix, device_id(each.driver, each.pool, card.name), card)
            for ix, (each, card) in enumerate(cards[:MAX_DEVICES])
        )

    def offers_of(self, node: str) -> frozenset[Delivery]:
        """How pods can get the cards of the node."""
        slices = (self._slices[uid] for uid in self._of_node.get(node, ()))
        drivers = {each.driver for each in slices if self._gives(each)}
        if not drivers:
            return BY_NODE
        if self._are_shared(self._given_by(node)):
            return BY_SHARE
        mapped = {each.driver for each in self._classes.values() if each.resource == NVIDIA_GPU}
        return BY_CLAIM_OR_RESOURCE if drivers & mapped else BY_CLAIM

    def share_steps_of(self, node: str) -> frozenset[MemorySteps]:
        """The memory amounts that the node's shared cards give; empty without shared cards."""
        given = self._given_by(node)
        if not self._are_shared(given):
            return frozenset()
        return frozenset(
            steps for each in given for card in each.shared if (steps := _steps(card)) is not None
        )

    def held_on(self, node: str) -> list[ClaimedCards]:
        """What is allocated of the node's cards, one entry per holder."""
        held: dict[tuple[str, str, str], dict[str, int]] = {}
        slices = [self._slices[uid] for uid in self._of_node.get(node, ())]
        pools = {(each.driver, each.pool) for each in slices if self._gives(each)}
        passed = {(each.driver, each.pool, name) for each in slices for name in each.others}
        if not self._are_shared(self._given_by(node)):
            shared = ((each, card) for each in slices for card in each.shared)
            passed |= {(each.driver, each.pool, card.name) for each, card in shared}
        for uid in {uid for pool in pools for uid in self._claims_of_pool.get(pool, ())}:
            claim = self._claims[uid]
            for each in claim.devices:
                is_here = (each.driver, each.pool) in pools
                if is_here and (each.driver, each.pool, each.device) not in passed:
                    devices = held.setdefault(claim.holder, {})
                    devices[each.id] = devices.get(each.id, 0) + _consumed_mib(each)
        return sorted(
            ClaimedCards(*holder, tuple(sorted(devices.items())))
            for holder, devices in held.items()
        )

    def _given_by(self, node: str) -> list[_Slice]:
        """Slices of the node in each pool's newest generation, from drivers with a DeviceClass."""
        found = [
            each for uid in self._of_node.get(node, ()) if self._gives(each := self._slices[uid])
        ]
        newest: dict[tuple[str, str], int] = {}
        for each in found:
            pool = each.driver, each.pool
            newest[pool] = max(newest.get(pool, 0), each.generation)
        return [each for each in found if each.generation == newest[each.driver, each.pool]]

    def _are_shared(self, given: Iterable[_Slice]) -> bool:
        """Whether claims share the cards of these slices: there are shared and no whole cards."""
        return any(each.shared for each in given) and not any(each.cards for each in given)

    def _gives(self, known: _Slice) -> bool:
        return any(known.driver == each.driver for each in self._classes.values())

    def _nodes_of(self, devices: Iterable[AllocatedDevice]) -> set[str]:
        pools = {(each.driver, each.pool) for each in devices}
        return {self._slices[uid].node for pool in pools for uid in self._of_pool.get(pool, ())}


def _steps(device: SliceDevice) -> MemorySteps | None:
    """The amounts that claims can get of the card; None where claims can't share it."""
    if not device.is_shared_card or device.capacity is None:
        return None
    try:
        return memory_steps(device.capacity[MEMORY].request_policy)
    except UnitError:
        return None


def _consumed_mib(allocated: AllocatedDevice) -> int:
    """MiB that the allocation takes of a shared card; 0 for a whole card."""
    try:
        return parse_memory((allocated.consumed_capacity or {}).get(MEMORY, 0))
    except UnitError:
        return 0


def _device(index: int, device: str, card: SliceDevice) -> Device:
    """The card as a device of the ledger; a tainted one is unhealthy, so it gets no more pods."""
    memory = (card.capacity or {}).get("memory")
    try:
        mib = parse_memory_floor(memory.value) if memory else 0
    except UnitError:
        mib = 0
    is_tainted = any(taint.effect in ("NoSchedule", "NoExecute") for taint in card.taints or ())
    return Device(
        index=index,
        memory_mib=mib,
        uuid=card.text("uuid"),
        model=card.text("productName", "model"),
        health="Unhealthy" if is_tainted else "Healthy",
        device=device,
    )


def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A key by which gpu-10 comes after gpu-9."""
    parts = _NUMBER.split(name)
    return tuple((1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts)


def _discard(sets: dict[K, set[str]], key: K, uid: str) -> None:
    sets[key].discard(uid)
    if not sets[key]:
        del sets[key]
