"""The driver's view: its cards, the memory of each process, and errors.

Uses NVIDIA's own binding (nvidia-ml-py) of libnvidia-ml. Every call may block for any time, so
calls run in threads. Raises NvmlError, which names the call; a card that fell off the bus raises
CardLost.
"""

import contextlib
import ctypes
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pynvml

from extender.api.kinds import Device

_MIB: Final = 1 << 20
#: NVML_FI_DEV_GET_GPU_RECOVERY_ACTION of nvml.h; the binding has its values but not its number.
_RECOVERY_FIELD: Final = 230
_RECOVERY: Final = {
    pynvml.NVML_GPU_RECOVERY_ACTION_NONE: "",
    pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET: "reset the GPU",
    pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT: "reboot the node",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_P2P: "stop the work that uses its links",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET: "drain the node, then reset the GPU",
}
_LOST: Final = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED)
_LISTS: Final = (
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
)


class NvmlError(Exception):
    """The driver refused; the message says which call, and why."""


class CardLost(NvmlError):  # noqa: N818
    """The card does not answer any more, or has to be reset."""


@dataclass(slots=True, frozen=True)
class Look:
    """The state of a card. `recovery` is the action that the driver requests: empty if none, None
    if it does not report one."""

    recovery: str | None = None
    is_remap_failed: bool = False


class Nvml:
    """The initialised library. Only one at a time: the binding keeps it in a global.

    Any thread may call any method. Handles of cards do not outlive `reopen`, so calls exclude it.
    Waiting for errors takes long, so it has its own lock.
    """

    def __init__(self, path: str = "") -> None:
        self._lock, self._waiting = threading.RLock(), threading.Lock()
        if path:
            try:
                pynvml.nvmlLib = ctypes.CDLL(path)
            except OSError as error:
                raise NvmlError(f"no NVML: {error}") from error
            pynvml._nvmlGetFunctionPointer_cache.clear()
        self._handles = dict[str, Any]()
        self._uuids = dict[int | None, str]()
        self._events: Any = None
        self._call("nvmlInit")

    def reopen(self) -> None:
        """Initialise again: a card that was reset is visible only after this."""
        with self._waiting, self._lock:
            self._handles.clear()
            self._uuids.clear()
            self._events = None
            with contextlib.suppress(NvmlError):
                self._call("nvmlShutdown")
            self._call("nvmlInit")

    def devices(self) -> Sequence[Device]:
        """All cards, in the driver's order. Cards in MIG mode are left out."""
        with self._lock:
            found = [self._device(index) for index in range(self._call("nvmlDeviceGetCount"))]
        return [device for device in found if device is not None]

    def _device(self, index: int) -> Device | None:
        """None for a lost card: a card that was known before is shown as unhealthy."""
        try:
            handle = self._call("nvmlDeviceGetHandleByIndex", index)
            if self._mode(handle) == pynvml.NVML_DEVICE_MIG_ENABLE:
                return None
            uuid = _text(self._call("nvmlDeviceGetUUID", handle))
            model = _text(self._call("nvmlDeviceGetName", handle)).replace(" ", "-")
            return Device(index=index, uuid=uuid, model=model, memory_mib=self._usable(handle))
        except CardLost:
            return None

    def cuda_version(self) -> int:
        """The driver's CUDA version, such as 13050 for 13.5; 0 if it does not report one."""
        with self._lock:
            return int(self._if_there("nvmlSystemGetCudaDriverVersion_v2") or 0)

    def minor(self, uuid: str) -> int:
        """The number of the card's device file, /dev/nvidia<number>."""
        with self._lock:
            return int(self._call("nvmlDeviceGetMinorNumber", self._handle(uuid)))

    def processes(self, uuid: str) -> Mapping[int, int]:
        """Bytes of the card's memory by pid, including contexts. Hidden figures count as 0."""
        found = defaultdict[int, int](int)
        with self._lock:
            for name in _LISTS:
                for each in self._if_there(name, self._handle(uuid)) or ():
                    found[each.pid] = max(found[each.pid], each.usedGpuMemory or 0)
        return found

    def look(self, uuid: str) -> Look:
        """The card's current state; raises CardLost."""
        with self._lock:
            handle = self._handle(uuid)
            self._call("nvmlDeviceGetUUID", handle)
            rows = self._if_there("nvmlDeviceGetRemappedRows", handle)
            return Look(self._recovery(handle), bool(rows and rows[3]))

    def wait_xid(self, at_most_ms: int) -> tuple[str, int] | None:
        """(UUID, number) of the next critical error of any card, or None after a while."""
        with self._waiting:
            with self._lock:
                events = self._registered()
            try:
                event = pynvml.nvmlEventSetWait_v2(events, at_most_ms)
            except pynvml.NVMLError as error:
                if error.value == pynvml.NVML_ERROR_TIMEOUT:
                    return None
                raise NvmlError(f"nvmlEventSetWait: {error}") from error
            if not event.eventType & pynvml.nvmlEventTypeXidCriticalError:
                return None
            # From the cache: the card may have fallen off the bus with this error.
            uuid = self._uuids.get(_address(event.device))
            return (uuid, int(event.eventData)) if uuid is not None else None

    def _registered(self) -> Any:
        """The event set with which all cards are registered."""
        if self._events is None:
            events = self._call("nvmlEventSetCreate")
            for device in self.devices():
                handle, kind = self._handle(device.uuid), pynvml.nvmlEventTypeXidCriticalError
                self._if_there("nvmlDeviceRegisterEvents", handle, kind, events)
                self._uuids[_address(handle)] = device.uuid
            self._events = events
        return self._events

    def _mode(self, handle: Any) -> int:
        found = self._if_there("nvmlDeviceGetMigMode", handle)
        return int(found[0]) if found else 0

    def _usable(self, handle: Any) -> int:
        """MiB of the card that programs can use: the driver reserves some for itself."""
        memory = self._if_there("nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2)
        if memory is None:
            memory = self._call("nvmlDeviceGetMemoryInfo", handle)
        return int(memory.total - getattr(memory, "reserved", 0)) // _MIB

    def _recovery(self, handle: Any) -> str | None:
        values = self._if_there("nvmlDeviceGetFieldValues", handle, [_RECOVERY_FIELD])
        if not values or values[0].nvmlReturn != pynvml.NVML_SUCCESS:
            return None
        action = int(values[0].value.uiVal)
        return _RECOVERY.get(action, f"recovery action {action}")

    def _handle(self, uuid: str) -> Any:
        if uuid not in self._handles:
            self._handles[uuid] = self._call("nvmlDeviceGetHandleByUUID", uuid)
        return self._handles[uuid]

    def _if_there(self, name: str, *arguments: Any) -> Any:
        """The call's result; None if the driver or the card does not support it."""
        unknown = (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_NOT_SUPPORTED)
        try:
            return self._call(name, *arguments)
        except NvmlError as error:
            if getattr(error.__cause__, "value", None) in unknown:
                return None
            raise

    def _call(self, name: str, *arguments: Any) -> Any:
        function: Callable[..., Any] = getattr(pynvml, name)
        try:
            return function(*arguments)
        except pynvml.NVMLError as error:
            kind = CardLost if error.value in _LOST else NvmlError
            raise kind(f"{name}: {error}") from error


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


def _text(found: str | bytes) -> str:
    return found.decode() if isinstance(found, bytes) else found
