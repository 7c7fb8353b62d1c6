"""The folder of a container that shares cards, which is mounted read-only.

`lib/` holds the libraries, `gpu.conf` the caps, `ld.so.preload` the list for the container's
loader, and `run/` the arbiter's socket.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from gpu_shim.arbiter.container import ContainerCard

LIBRARIES: Final = ("libcuda.so.1", "libnvidia-ml.so.1")
#: Where a container sees its folder.
INSIDE: Final = "/usr/lib/ballast"


def furnish(home: Path, libraries: Path, cards: Iterable[ContainerCard]) -> None:
    """Create the folder, or rewrite the caps of an existing one; raises OSError.

    `libraries` is where ours were built. Only caps ever change: the other files are mounted as they
    are, and replacements would not be seen.
    """
    (home / "lib").mkdir(parents=True, exist_ok=True)
    for name in LIBRARIES:
        if not (home / "lib" / name).exists():
            _write(home / "lib" / name, (libraries / name).read_bytes())
    if not (home / "ld.so.preload").exists():
        preload = "".join(f"{path}\n" for path in preloaded(INSIDE))
        _write(home / "ld.so.preload", preload.encode())
    caps = "".join(f"card {card.uuid} {card.cap_mib}\n" for card in cards)
    _write(home / "gpu.conf", caps.encode())


def preloaded(home: Path | str) -> list[str]:
    """The libraries to preload if the folder is seen as `home`."""
    return [f"{home}/lib/{name}" for name in LIBRARIES]


def socket_path(home: Path) -> Path:
    """The socket to which the container's programs connect."""
    return home / "run" / "arbiter.sock"


def _write(path: Path, data: bytes) -> None:
    """Write the file atomically, even if we are killed meanwhile."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_bytes(data)
    fresh.replace(path)
