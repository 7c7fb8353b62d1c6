"""The card of each index of the ledger.

Rows name cards by index, and an index must keep its card: the driver renumbers cards when one is
missing at boot. If NVIDIA's device plugin owns the cards, kubelet picks the card for a pod; the
agent learns its choice afterwards and changes the index accordingly.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from extender.api.kinds import Device


def keep_indices(
    found: Sequence[Device], before: Sequence[Device], used: Collection[int]
) -> list[Device]:
    """The cards that were found, each with its previous index.

    A missing card stays, unhealthy, while its index is `used` by rows. A new card gets the driver's
    number if that is free, else the lowest free one.
    """
    index_of = {device.uuid: device.index for device in before if device.uuid}
    by_uuid = {device.uuid: device for device in found}
    made = {
        device.index: device if device.uuid in by_uuid else _ill(device)
        for device in before
        if device.uuid and (device.uuid in by_uuid or device.index in used)
    }
    for index, old in made.items():
        if old.uuid in by_uuid:
            made[index] = msgspec.structs.replace(by_uuid[old.uuid], index=index)
    for device in found:
        if device.uuid not in index_of:
            free = (each for each in (device.index, *range(64)) if each not in made)
            index = next(free)
            made[index] = msgspec.structs.replace(device, index=index)
    return [made[index] for index in sorted(made)]


@dataclass(slots=True, frozen=True)
class Hold:
    """Cards that kubelet gave to one pod for these indices, in any order."""

    indices: tuple[int, ...]
    uuids: tuple[str, ...]


@dataclass(slots=True, frozen=True)
class Meaning:
    """Devices as the ledger is to see them; indices without a hold; contradictions."""

    devices: list[Device]
    unheld: frozenset[int]
    conflicts: list[str]


def settle(devices: Sequence[Device], holds: Sequence[Hold], running: Mapping[int, str]) -> Meaning:
    """The card of each index after these holds.

    `running` are the cards of indices whose pods run already: such an index keeps its card,
    whatever kubelet reports later.
    """
    by_uuid = {device.uuid: device for device in devices}
    pinned = {index: uuid for index, uuid in running.items() if uuid in by_uuid}
    conflicts = list[str]()
    for hold in holds:
        wanted = [uuid for uuid in hold.uuids if uuid in by_uuid]
        for index, uuid in _pairs(hold, wanted, {each.index: each.uuid for each in devices}):
            if pinned.get(index, uuid) != uuid:
                conflicts.append(f"card {index} is {pinned[index]}, and kubelet gave {uuid} for it")
            elif uuid in pinned.values() and pinned.get(index) != uuid:
                conflicts.append(f"{uuid} is given for card {index} and for another")
            else:
                pinned[index] = uuid
    uuids = {device.index: device.uuid for device in devices} | pinned
    taken = set(pinned.values())
    left = [device.uuid for device in devices if device.uuid not in set(uuids.values())]
    for index in sorted(set(uuids) - set(pinned)):
        if uuids[index] in taken:
            uuids[index] = left.pop(0)
    made = [msgspec.structs.replace(by_uuid[uuids[i]], index=i) for i in sorted(uuids)]
    held = {index for hold in holds for index in hold.indices} | set(running)
    return Meaning(made, frozenset(set(uuids) - held), conflicts)


def _pairs(hold: Hold, wanted: Sequence[str], now: Mapping[int, str]) -> list[tuple[int, str]]:
    """Indices with their cards: unchanged where possible, the others in order."""
    same = [(index, now[index]) for index in hold.indices if now.get(index) in wanted]
    indices = [index for index in hold.indices if now.get(index) not in wanted]
    rest = [uuid for uuid in wanted if uuid not in {uuid for _, uuid in same}]
    return same + list(zip(indices, rest, strict=False))


def _ill(device: Device) -> Device:
    return msgspec.structs.replace(device, health="Unhealthy")
