"""The memory cap in the driver itself, per control group, where it has one (r615 and newer).

Never run on such a driver, and not to be relied on: NVML asks for the full path of a group, says
that a limit may not reach containers below it, and needs a writable mount and privileges that the
agent does not have. The library's own cap is what programs see, and it refuses allocations.
Source: NVML's reference, nvmlDeviceSetMemoryLimits_v1, and NVIDIA's MPS guide on control groups.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pynvml
import structlog

from gpu_shim.agent.tenants import SharingPod

GROUPS: Final = Path("/sys/fs/cgroup")
MIB: Final = 1 << 20
#: Levels down to a pod's group: where kubelet was put, kubepods, the class of service, the pod.
_DEPTH: Final = 4

_log = structlog.get_logger("gpu_shim.agent.driver_memory_limits")

#: (card's UUID, control group below the root of cgroup v2, bytes or None for no limit).
SetLimit = Callable[[str, str, int | None], None]


class NoLimitsError(Exception):
    """The driver, or the kernel below it, has no such limits."""


def set_in_driver(uuid: str, group: str, n_bytes: int | None) -> None:
    """Set or lift a control group's limit on one card; raises NoLimitsError, pynvml.NVMLError.

    NVML must be initialised, and stay so meanwhile: a program that opens it anew calls this by
    `Nvml.limit_memory`. Needs root on the host.
    """
    limit = pynvml.NVML_DEVICE_MEMORY_LIMIT_MAX if n_bytes is None else n_bytes
    soft = 0 if n_bytes is None else n_bytes
    limits = pynvml.c_nvmlSetMemoryLimits_v1_t(group.encode(), soft, limit)
    try:
        device = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        pynvml.nvmlDeviceSetMemoryLimits_v1(device, limits)
    except (pynvml.NVMLError_FunctionNotFound, pynvml.NVMLError_NotSupported) as error:
        raise NoLimitsError(str(error)) from None


def group_of(uid: str, root: Path = GROUPS) -> str:
    """The pod's control group below `root`; empty where it has none, or not in cgroup v2."""
    if not (root / "cgroup.controllers").exists():
        return ""
    names = (f"pod{uid}", f"pod{uid.replace('-', '_')}.slice")
    level = [each for each in root.iterdir() if each.is_dir() and "kube" in each.name]
    for _ in range(_DEPTH):
        for folder in level:
            if folder.name.endswith(names):
                return f"/{folder.relative_to(root)}"
        open_ones = [each for each in level if "pod" not in each.name.replace("kubepods", "")]
        level = [each for above in open_ones for each in above.iterdir() if each.is_dir()]
    return ""


@dataclass(slots=True)
class DriverLimits:
    """Keeps the driver's limits as the tenants' caps are. `keep` is called again and again."""

    set_limit: SetLimit
    root: Path = GROUPS
    #: None until the first try has shown it.
    is_supported: bool | None = None
    _set: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)

    def keep(self, tenants: Iterable[SharingPod]) -> Mapping[str, str]:
        """Set what is new or changed, lift what is gone; what went wrong, by the pod's uid.

        A pod without a group yet is tried again. Blocks: NVML's calls do.
        """
        if self.is_supported is False:
            return {}
        wanted = {
            (tenant.uid, card.uuid): card.cap_mib * MIB
            for tenant in tenants
            for card in tenant.cards
        }
        failed = dict[str, str]()
        for uid, uuid in [key for key in self._set if key not in wanted]:
            group, _ = self._set.pop((uid, uuid))
            if (self.root / group.lstrip("/")).exists():
                self._try(uid, uuid, group, None, failed)
        for (uid, uuid), n_bytes in wanted.items():
            group, before = self._set.get((uid, uuid), ("", -1))
            group = group or group_of(uid, self.root)
            if group and n_bytes != before and self._try(uid, uuid, group, n_bytes, failed):
                self._set[(uid, uuid)] = (group, n_bytes)
        return failed

    def _try(
        self, uid: str, uuid: str, group: str, n_bytes: int | None, failed: dict[str, str]
    ) -> bool:
        if self.is_supported is False:
            return False
        try:
            self.set_limit(uuid, group, n_bytes)
        except NoLimitsError as error:
            self.is_supported = False
            _log.info("the driver has no memory limits of its own", reason=str(error))
            return False
        except pynvml.NVMLError as error:
            failed[uid] = f"the driver refused a limit for {group}: {error}"
            return False
        self.is_supported = True
        return True
