"""KubeRay's operator, built once from its pinned Go module into a cache outside the tree."""

import os
from pathlib import Path
from typing import Final

from tests.support.controlplane.binaries import folder_for
from tests.support.controlplane.builder import Source, build_missing, module_folder

MODULES: Final = Path(__file__).with_name("modules")
MODULE: Final = "github.com/ray-project/kuberay/ray-operator"
SOURCES: Final = {"kuberay": Source(MODULES / "kuberay", MODULE)}


def kuberay_path() -> Path:
    """Path of the program, which may not be built yet."""
    return folder_for("kuberay", MODULES) / "kuberay"


def is_built() -> bool:
    """Whether the program is built."""
    return os.access(kuberay_path(), os.X_OK)


def build() -> Path:
    """The program, built if it is missing (some minutes)."""
    path = kuberay_path()
    build_missing(path.parent, SOURCES)
    return path


def definitions() -> list[Path]:
    """The files with its CRDs, from the same module."""
    module = module_folder(MODULES / "kuberay", MODULE, kuberay_path().parents[2])
    return sorted((module / "config" / "crd" / "bases").glob("*.yaml"))
