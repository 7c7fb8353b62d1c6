"""The image's libraries for nodes: the same sources give the same bytes, in any folder."""

import hashlib
import shutil
from pathlib import Path

from manifests.image.layers import ROOT
from manifests.image.python import build_libraries


def test_libraries_are_the_same_wherever_they_were_compiled(tmp_path: Path) -> None:
    first, second = (_digests(tmp_path / name) for name in ("here", "and/elsewhere"))

    assert first.keys() == {"libballast-pages.so", "libcuda.so.1", "libnvidia-ml.so.1"}
    assert first == second


def _digests(tree: Path) -> dict[str, str]:
    """SHA-256 of each library that is compiled from a copy of the sources there, by its name."""
    made = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "gpu_shim", tree / "gpu_shim", ignore=made)
    libraries = tree / "libraries"
    build_libraries(tree, libraries)
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in libraries.iterdir()
    }
