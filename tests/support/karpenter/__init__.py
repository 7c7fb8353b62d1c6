"""Karpenter with its kwok provider, built once from its pinned Go module into a cache.

The provider makes Node objects, and kwok plays the machines. Karpenter's own definitions come from
the same module.
"""

from pathlib import Path
from typing import Final

from tests.support.controlplane.binaries import folder_for
from tests.support.controlplane.builder import Source, build_missing, module_folder

MODULES: Final = Path(__file__).with_name("modules")
SOURCES: Final = {"karpenter": Source(MODULES / "karpenter", "sigs.k8s.io/karpenter/kwok")}


def karpenter_path() -> Path:
    """Where the program is, or will be once it is built."""
    return folder_for("karpenter", MODULES) / "karpenter"


def build() -> Path:
    """The program, built if it is missing (some minutes)."""
    path = karpenter_path()
    build_missing(path.parent, SOURCES)
    return path


def definitions() -> list[Path]:
    """The files with the kinds of Karpenter and of its kwok provider, out of the same module."""
    folder = _module_folder()
    return sorted((*folder.glob("pkg/apis/crds/*.yaml"), *folder.glob("kwok/apis/crds/*.yaml")))


def _module_folder() -> Path:
    return module_folder(
        MODULES / "karpenter", "sigs.k8s.io/karpenter", karpenter_path().parents[2]
    )
