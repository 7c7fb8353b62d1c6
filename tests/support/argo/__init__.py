"""Argo's workflow-controller, built once from its pinned Go module, in a cache outside the tree."""

import os
from pathlib import Path
from typing import Final

from tests.support.controlplane.binaries import folder_for
from tests.support.controlplane.builder import Source, build_missing, module_folder

MODULES: Final = Path(__file__).with_name("modules")
MODULE: Final = "github.com/argoproj/argo-workflows/v4"
PROGRAM: Final = "workflow-controller"
SOURCES: Final = {PROGRAM: Source(MODULES / "argo", f"{MODULE}/cmd/{PROGRAM}")}


def argo_path() -> Path:
    """Path of the program, which may not be built yet."""
    return folder_for("argo", MODULES) / PROGRAM


def is_built() -> bool:
    """Whether the program is built."""
    return os.access(argo_path(), os.X_OK)


def build() -> Path:
    """The program, built if it is missing (some minutes)."""
    path = argo_path()
    build_missing(path.parent, SOURCES)
    return path


def definitions() -> list[Path]:
    """The files with its CRDs, from the same module."""
    module = module_folder(MODULES / "argo", MODULE, argo_path().parents[2])
    return sorted((module / "manifests" / "base" / "crds" / "minimal").glob("argoproj.io_*.yaml"))
