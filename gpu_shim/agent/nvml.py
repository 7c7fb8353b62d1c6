"""What the driver itself says about cards: which process has how much memory.

Four functions of libnvidia-ml by their stable C interface. Raises NvmlError, whose text names the
call; a card that fell off the bus is one.
"""

import ctypes
from collections.abc import Mapping
from typing import Final

_OK: Final = 0
_TOO_SMALL: Final = 7
#: More processes than any card has had in practice; asked again with more where that is not enough.
_ROOM: Final = 256


class NvmlError(Exception):
    """The driver refused; the message says which call and its code."""


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used_bytes", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute", ctypes.c_uint),
    )


class Nvml:
    """The library, initialised."""

    def __init__(self, path: str = "libnvidia-ml.so.1") -> None:
        try:
            self._c = ctypes.CDLL(path)
        except OSError as error:
            raise NvmlError(f"no NVML: {error}") from error
        self._call("nvmlInit_v2")
        self._devices = dict[str, ctypes.c_void_p]()

    def processes(self, uuid: str) -> Mapping[int, int]:
        """Bytes of the card's memory by pid, contexts and all. What the driver hides counts 0."""
        room = ctypes.c_uint(_ROOM)
        while True:
            found = (_Process * room.value)()
            code = self._c.nvmlDeviceGetComputeRunningProcesses_v3(
                self._device(uuid), ctypes.byref(room), found
            )
            if code == _OK:
                break
            if code != _TOO_SMALL:
                raise NvmlError(f"nvmlDeviceGetComputeRunningProcesses: {code}")
            room.value *= 2
        # All ones stand for "not available".
        return {
            each.pid: each.used_bytes if each.used_bytes < 1 << 63 else 0
            for each in found[: room.value]
        }

    def _device(self, uuid: str) -> ctypes.c_void_p:
        if uuid not in self._devices:
            device = ctypes.c_void_p()
            self._call("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(device))
            self._devices[uuid] = device
        return self._devices[uuid]

    def _call(self, name: str, *arguments: object) -> None:
        if (code := getattr(self._c, name)(*arguments)) != _OK:
            raise NvmlError(f"{name}: {code}")
