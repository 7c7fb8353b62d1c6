"""The node's cards from a file, for nodes without NVML.

devices:
- {index: 0, uuid: GPU-..., memoryMiB: 81920, model: NVIDIA-H100}
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from extender.api.kinds import Device


class InventoryError(Exception):
    """The file cannot be used; the message names it and says why."""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    devices: list[Device]


def read_inventory(path: Path) -> Sequence[Device]:
    """The cards in order of their indices; raises InventoryError."""
    try:
        found = msgspec.yaml.decode(path.read_bytes(), type=_File).devices
    except (OSError, ValueError, RecursionError) as error:
        raise InventoryError(f"{path}: {' '.join(str(error).split())}") from error
    devices = sorted(found, key=lambda device: device.index)
    if len({device.index for device in devices}) < len(devices):
        raise InventoryError(f"{path}: two devices have the same index")
    if not all(device.uuid and device.memory_mib for device in devices):
        raise InventoryError(f"{path}: every device needs uuid and memoryMiB")
    return devices


def by_index(devices: Sequence[Device]) -> Mapping[int, Device]:
    """The devices by the index that ledger rows use."""
    return {device.index: device for device in devices}
