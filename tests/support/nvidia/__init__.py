"""NVIDIA's device plugin and container toolkit, built once from their pinned Go modules (gcc)."""

import os
from pathlib import Path
from typing import Final

from tests.support.controlplane.binaries import folder_for
from tests.support.controlplane.builder import Source, build_missing

MODULES: Final = Path(__file__).with_name("modules")
_TOOLKIT: Final = "github.com/NVIDIA/nvidia-container-toolkit/cmd"
_PLUGIN: Final = "github.com/NVIDIA/k8s-device-plugin/cmd"
SOURCES: Final = {
    "nvidia-cdi-hook": Source(MODULES / "toolkit", f"{_TOOLKIT}/nvidia-cdi-hook", has_c=True),
    "nvidia-container-runtime": Source(
        MODULES / "toolkit", f"{_TOOLKIT}/nvidia-container-runtime", has_c=True
    ),
    "nvidia-ctk": Source(MODULES / "toolkit", f"{_TOOLKIT}/nvidia-ctk", has_c=True),
    "nvidia-device-plugin": Source(
        MODULES / "plugin", f"{_PLUGIN}/nvidia-device-plugin", has_c=True
    ),
}


def folder() -> Path:
    """The folder of the programs, which may not be built yet."""
    return folder_for("nvidia", MODULES)


def is_built() -> bool:
    """Whether all programs are built."""
    return all(os.access(folder() / each, os.X_OK) for each in SOURCES)


def build() -> Path:
    """The folder of the programs; builds those that are missing (minutes)."""
    build_missing(folder(), SOURCES)
    return folder()
