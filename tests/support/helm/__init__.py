"""Helm as its users have it, built once from its pinned Go module into a cache outside the tree."""

import os
from collections.abc import Mapping
from pathlib import Path

from tests.support.controlplane.binaries import modules_digest
from tests.support.controlplane.builder import Source, build_missing

MODULES = Path(__file__).with_name("modules")
SOURCES = {"helm": Source(MODULES / "helm", "helm.sh/helm/v4/cmd/helm")}


def helm_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the program is, or will be once it is built."""
    base = environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "ballast" / "helm" / modules_digest(MODULES) / "helm"


def build() -> Path:
    """The program, built if it is missing (some minutes)."""
    path = helm_path()
    build_missing(path.parent, SOURCES)
    return path
