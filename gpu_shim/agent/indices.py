"""Which card an index of the ledger means.

Rows name cards by index, and must go on meaning the same card: the driver numbers cards anew when
one is missing at boot. Where NVIDIA's device plugin owns the cards, kubelet picks the card for a
pod that asks for one; which it picked is learned afterwards, and the index follows the fact.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from extender.api.kinds import Device


def keep_indices(
    found: Sequence[Device], before: Sequence[Device], used: Collection[int]
) -> list[Device]:
    """The cards that were found, each under the index that it had before.

    A card that is missing stays, unhealthy, for as long as its index is `used` by rows. New cards
    get the driver's own number where that is free, else the lowest that is.
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
    """What kubelet gave to one pod: these cards for these indices, in any order."""

    indices: tuple[int, ...]
    uuids: tuple[str, ...]


@dataclass(slots=True, frozen=True)
class Meaning:
    """Devices as the ledger shall see them; indices in no hold; where facts contradict."""

    devices: list[Device]
    unheld: frozenset[int]
    conflicts: list[str]


def settle(devices: Sequence[Device], holds: Sequence[Hold], running: Mapping[int, str]) -> Meaning:
    """What each index means after these holds.

    `running` are the cards on which pods of an index run already: an index does not move under
    them, whatever kubelet says later.
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
    """Indices with the cards they mean: as they are where that fits, the rest in order."""
    same = [(index, now[index]) for index in hold.indices if now.get(index) in wanted]
    indices = [index for index in hold.indices if now.get(index) not in wanted]
    rest = [uuid for uuid in wanted if uuid not in {uuid for _, uuid in same}]
    return same + list(zip(indices, rest, strict=False))


def _ill(device: Device) -> Device:
    return msgspec.structs.replace(device, health="Unhealthy")
