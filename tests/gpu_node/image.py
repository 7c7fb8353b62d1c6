"""The image of the tenants: this machine's Python, with its PyTorch in a volume.

PyTorch is too large to be packed for one run; it lies in the folder of Python's environment.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from manifests.image.archive import Entry, Image, folder_entries, write_archive, write_layer
from tests.e2e.site import ROOT

NAME: Final = "ballast.dev/pytorch:0.1.0"
#: The folder that tenants have as a volume, at the same path.
ENVIRONMENT: Final = (
    Path(sys.prefix).parent if Path(sys.prefix).name == ".venv" else Path(sys.prefix)
)
JOBS: Final = ROOT / "gpu_shim" / "kit" / "jobs.py"
_LIBRARIES: Final = Path("/usr/lib/x86_64-linux-gnu")
_LARGEST: Final = 64 << 20
_LOADER: Final = "ld-linux-x86-64.so.2"
_CREATED: Final = "1970-01-01T00:00:00Z"


def write_pytorch_image(folder: Path) -> Path:
    """Write the image into a folder; returns the archive's path."""
    layer = write_layer(folder / "pytorch.layer", _entries(), 0, is_compressed=False)
    archive = folder / "pytorch.tar"
    write_archive(archive, Image(NAME, (layer,), "amd64", user="1000:1000"), _CREATED)
    layer.path.unlink()
    return archive


def _entries() -> Iterator[Entry]:
    for folder in ("etc", "tmp", "usr", "usr/bin", "usr/lib", "usr/lib64", "usr/local", "opt"):
        yield Entry(folder, 0o1777 if folder == "tmp" else 0o755)
    for link in ("bin", "lib", "lib64"):
        yield Entry(link, link=f"usr/{link}")
    yield Entry("etc/passwd", 0o644, b"root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\n")
    yield Entry(f"usr/lib64/{_LOADER}", link=f"../lib/x86_64-linux-gnu/{_LOADER}")
    python = Path(sys.executable).resolve()
    yield Entry(str(python).lstrip("/"), 0o755, python)
    yield Entry("usr/bin/sh", 0o755, Path("/usr/bin/dash"))
    yield Entry("jobs.py", 0o644, JOBS)
    base = Path(sys.modules["os"].__file__ or "").resolve().parent
    if sys.base_prefix != "/usr":
        base = Path(sys.base_prefix).resolve()
    yield Entry(str(base).lstrip("/"))
    yield from folder_entries(base, str(base).lstrip("/"))
    under = str(_LIBRARIES).lstrip("/")
    yield Entry(under)
    for path in sorted(_LIBRARIES.glob("*.so*")):
        if path.is_symlink():
            yield Entry(f"{under}/{path.name}", link=str(path.readlink()))
        elif path.is_file() and path.stat().st_size < _LARGEST:
            yield Entry(f"{under}/{path.name}", 0o755, path)
