"""Helm, built once from its pinned Go module into a cache outside the tree."""

from pathlib import Path

from tests.support.controlplane.binaries import folder_for
from tests.support.controlplane.builder import Source, build_missing

MODULES = Path(__file__).with_name("modules")
SOURCES = {"helm": Source(MODULES / "helm", "helm.sh/helm/v4/cmd/helm")}


def helm_path() -> Path:
    """Path of the program, which may not be built yet."""
    return folder_for("helm", MODULES) / "helm"


def build() -> Path:
    """The program, built if it is missing (some minutes)."""
    path = helm_path()
    build_missing(path.parent, SOURCES)
    return path
