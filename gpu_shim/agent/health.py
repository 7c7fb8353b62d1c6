"""Which cards may not be given away, why, and until when.

A card becomes unhealthy at once: by an error of its own, by silence, or because the driver asks for
a reset. It becomes healthy again when the driver has said twice in a row that it asks for nothing,
or with the next boot. A driver that never says what it asks for leaves only the boot.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from gpu_shim.agent.nvml import Look
from gpu_shim.agent.xids import classify

#: Looks in a row that must find nothing before a card is trusted again.
CLEAN_LOOKS: Final = 2
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
SILENT: Final = "does not answer the driver: reset the GPU or reboot the node"


class _File(msgspec.Struct):
    boot: str
    ill: dict[str, str]


@dataclass(slots=True)
class Health:
    """What is wrong with cards, by UUID. Kept in a file, for an agent that comes after us."""

    path: Path
    boot: str
    ill: dict[str, str] = field(default_factory=dict)
    n_xids: dict[int, int] = field(default_factory=dict)
    _clean: dict[str, int] = field(default_factory=dict)

    def recall(self) -> None:
        """Take in what an agent before us knew, if the node was not booted since."""
        try:
            kept = msgspec.json.decode(self.path.read_bytes(), type=_File)
        except (OSError, msgspec.DecodeError):
            return
        if kept.boot == self.boot:
            self.ill = kept.ill

    def saw_xid(self, uuid: str, number: int) -> str:
        """Take in an error; the sentence about it."""
        self.n_xids[number] = self.n_xids.get(number, 0) + 1
        fault, sentence = classify(number)
        if fault == "card":
            self._mark(uuid, sentence)
        return sentence

    def saw_silence(self, uuid: str) -> None:
        """The card did not answer."""
        self._mark(uuid, self.ill.get(uuid, SILENT))

    def looked(self, uuid: str, look: Look) -> None:
        """Take in how the card is now."""
        if look.recovery or look.is_remap_failed:
            asks = f"the driver asks to {look.recovery}" if look.recovery else classify(64)[1]
            self._mark(uuid, self.ill.get(uuid, asks))
        elif uuid in self.ill and (look.recovery is not None or self.ill[uuid] == SILENT):
            self._clean[uuid] = self._clean.get(uuid, 0) + 1
            if self._clean[uuid] >= CLEAN_LOOKS:
                del self.ill[uuid], self._clean[uuid]
                self._keep()

    def sentences(self, uuids: Iterable[str]) -> list[str]:
        """What is wrong with these cards, one sentence for each that is ill."""
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
    """Tells this boot of the machine from every other; empty where the kernel does not say."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
