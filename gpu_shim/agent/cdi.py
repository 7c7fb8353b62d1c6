"""The CDI device of a card, from the specifications on the node.

NVIDIA's container toolkit writes `nvidia.com/gpu`, the device plugin of NVIDIA's operator
`k8s.device-plugin.nvidia.com/gpu`; a runtime refuses a container that names an unknown device. A
specification is JSON or YAML: `kind`, and `devices` with a `name` each.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog
import yaml

#: In the runtime's default order; for the same kind, the runtime uses the later one.
FOLDERS: Final = (Path("/etc/cdi"), Path("/var/run/cdi"))
#: Preferred if several kinds name a card; other kinds follow by name.
PREFERRED: Final = ("nvidia.com/gpu", "k8s.device-plugin.nvidia.com/gpu")
_MOST_BYTES: Final = 4 << 20
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_log = structlog.get_logger("gpu_shim.agent")


@dataclass(slots=True, frozen=True)
class Specification:
    """One file: its kind, and the names of its devices."""

    kind: str
    devices: frozenset[str]


@dataclass(slots=True)
class CdiDevices:
    """The node's specifications, read again when a file changes; a given `kind` replaces them."""

    folders: Iterable[Path] = FOLDERS
    kind: str = ""
    _read: dict[Path, tuple[tuple[int, int], Specification | None]] = field(default_factory=dict)

    def name_of(self, uuid: str) -> str:
        """The card's device, such as nvidia.com/gpu=GPU-...; "" if no specification has it."""
        if self.kind:
            return f"{self.kind}={uuid}"
        self._refresh()
        kinds = {
            each.kind
            for _, each in self._read.values()
            if each is not None and uuid in each.devices
        }
        for kind in (*PREFERRED, *sorted(kinds)):
            if kind in kinds:
                return f"{kind}={uuid}"
        return ""

    def _refresh(self) -> None:
        found = dict[Path, tuple[int, int]]()
        for folder in self.folders:
            for path in _files_in(folder):
                try:
                    about = path.stat()
                except OSError:
                    continue
                found[path] = (about.st_mtime_ns, about.st_size)
        self._read = {path: each for path, each in self._read.items() if path in found}
        for path, state in found.items():
            known = self._read.get(path)
            if known is None or known[0] != state:
                self._read[path] = (state, _read(path, state[1]))


def _files_in(folder: Path) -> list[Path]:
    try:
        return sorted(
            each for each in folder.iterdir() if each.suffix in (".json", ".yaml", ".yml")
        )
    except OSError:
        return []


def _read(path: Path, n_bytes: int) -> Specification | None:
    """The specification in a file; None, with a warning in the log, if it is invalid."""
    try:
        if n_bytes > _MOST_BYTES:
            raise ValueError(f"it has {n_bytes} bytes")
        text = path.read_text("utf-8")
        loaded = json.loads(text) if path.suffix == ".json" else yaml.load(text, _LOADER)  # noqa: S506
        names = frozenset(str(each["name"]) for each in loaded["devices"])
        return Specification(str(loaded["kind"]), names)
    except (OSError, ValueError, TypeError, KeyError, yaml.YAMLError) as error:
        _log.warning("could not read a CDI specification", path=str(path), why=str(error))
        return None
