"""Karpenter with its kwok provider, built once from its pinned Go module into a cache.

The provider creates Node objects, and kwok simulates the machines. Karpenter's own CRDs come from
the same module.
"""

from pathlib import Path
from typing import Final

from tests.support.controlplane.binaries import folder_for
from tests.support.controlplane.builder import Source, build_missing, module_folder

MODULES: Final = Path(__file__).with_name("modules")
SOURCES: Final = {"karpenter": Source(MODULES / "karpenter", "sigs.k8s.io/karpenter/kwok")}


def karpenter_path() -> Path:
    """Path of the program, which may not be built yet."""
    return folder_for("karpenter", MODULES) / "karpenter"


def build() -> Path:
    """The program, built if it is missing (some minutes)."""
    path = karpenter_path()
    build_missing(path.parent, SOURCES)
    return path


def definitions() -> list[Path]:
    """The files with the CRDs of Karpenter and of its kwok provider, from the same module."""
    folder = _module_folder()
    return sorted((*folder.glob("pkg/apis/crds/*.yaml"), *folder.glob("kwok/apis/crds/*.yaml")))


def _module_folder() -> Path:
    return module_folder(
        MODULES / "karpenter", "sigs.k8s.io/karpenter", karpenter_path().parents[2]
    )
