"""KEDA, built once from its pinned Go module, and its manifests, in a cache outside the tree."""

import os
from pathlib import Path
from typing import Final

from tests.support.controlplane.binaries import folder_for
from tests.support.controlplane.builder import Source, build_missing, module_folder

MODULES: Final = Path(__file__).with_name("modules")
MODULE: Final = "github.com/kedacore/keda/v2"
#: The operator, and the server of external.metrics.k8s.io.
SOURCES: Final = {
    "keda-operator": Source(MODULES / "keda", f"{MODULE}/cmd/operator"),
    "keda-adapter": Source(MODULES / "keda", f"{MODULE}/cmd/adapter"),
}


def folder() -> Path:
    """The folder of the programs, which may not be built yet."""
    return folder_for("keda", MODULES)


def is_built() -> bool:
    """Whether both programs are built."""
    return all(os.access(folder() / each, os.X_OK) for each in SOURCES)


def build() -> Path:
    """The folder with the programs; builds what is missing (10 minutes on two cores)."""
    build_missing(folder(), SOURCES)
    return folder()


def manifests() -> Path:
    """The folder with KEDA's own manifests, from the same module."""
    return module_folder(MODULES / "keda", MODULE, folder().parents[1]) / "config"
