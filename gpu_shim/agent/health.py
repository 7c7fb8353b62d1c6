"""Which cards must not be used, why, and until when.

A card becomes unhealthy at once: by its own error, by silence, or because the driver asks for a
reset. It becomes healthy again after two clean checks in a row of the driver's recovery action, or
with the next boot. If the driver does not report recovery actions, only a boot does it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from gpu_shim.agent.nvml import Look
from gpu_shim.agent.xids import classify

#: Clean checks in a row until a card is healthy again.
CLEAN_LOOKS: Final = 2
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
SILENT: Final = "does not answer the driver: reset the GPU or reboot the node"


class _File(msgspec.Struct):
    boot: str
    ill: dict[str, str]


@dataclass(slots=True)
class Health:
    """The faults of cards, by UUID. Kept in a file for the next agent."""

    path: Path
    boot: str
    ill: dict[str, str] = field(default_factory=dict)
    n_xids: dict[int, int] = field(default_factory=dict)
    _clean: dict[str, int] = field(default_factory=dict)

    def recall(self) -> None:
        """Load the previous agent's faults, unless the node was booted since."""
        try:
            kept = msgspec.json.decode(self.path.read_bytes(), type=_File)
        except (OSError, msgspec.DecodeError):
            return
        if kept.boot == self.boot:
            self.ill = kept.ill

    def saw_xid(self, uuid: str, number: int) -> str:
        """Record an error; return the sentence about it."""
        self.n_xids[number] = self.n_xids.get(number, 0) + 1
        fault, sentence = classify(number)
        if fault == "card":
            self._mark(uuid, sentence)
        return sentence

    def saw_silence(self, uuid: str) -> None:
        """Record that the card did not answer."""
        self._mark(uuid, self.ill.get(uuid, SILENT))

    def looked(self, uuid: str, look: Look) -> None:
        """Record the result of a check."""
        if look.recovery or look.is_remap_failed:
            asks = f"the driver asks to {look.recovery}" if look.recovery else classify(64)[1]
            self._mark(uuid, self.ill.get(uuid, asks))
        elif uuid in self.ill and (look.recovery is not None or self.ill[uuid] == SILENT):
            self._clean[uuid] = self._clean.get(uuid, 0) + 1
            if self._clean[uuid] >= CLEAN_LOOKS:
                del self.ill[uuid], self._clean[uuid]
                self._keep()

    def sentences(self, uuids: Iterable[str]) -> list[str]:
        """The faults of these cards, one sentence for each unhealthy one."""
        return [f"{uuid}: {self.ill[uuid]}" for uuid in uuids if uuid in self.ill]

    def _mark(self, uuid: str, why: str) -> None:
        self._clean.pop(uuid, None)
        if self.ill.get(uuid) != why:
            self.ill[uuid] = why
            self._keep()

    def _keep(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(_File(self.boot, self.ill)))
        fresh.replace(self.path)


def boot_id(path: Path = BOOT_ID) -> str:
    """Identifies the current boot of the machine; empty if the kernel does not provide it."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
