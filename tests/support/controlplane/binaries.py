"""Paths of the control plane's programs, from the environment or built once.

Order: $BALLAST_CONTROLPLANE_BIN (must have all of them), $KUBEBUILDER_ASSETS (missing ones come
from the cache), the cache folder, which `builder.py` fills. The cache is keyed by the pinned
modules.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from tests.support.controlplane.builder import (
    MODULES,
    OTHER_MODULES,
    OTHER_PROGRAMS,
    SOURCES,
    build_missing,
    other_sources,
)
from tests.support.controlplane.process import ControlPlaneError

PROGRAMS = tuple(SOURCES)


def find_binaries(environ: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """Paths of all programs in `PROGRAMS`; builds missing ones, which takes minutes."""
    given = environ.get("BALLAST_CONTROLPLANE_BIN", "")
    if given:
        found = _present(Path(given))
        missing = [each for each in PROGRAMS if each not in found]
        if missing:
            raise ControlPlaneError(
                f"BALLAST_CONTROLPLANE_BIN={given}: has no {', '.join(missing)}; "
                "add them, or unset it to have them built"
            )
        return found
    assets = environ.get("KUBEBUILDER_ASSETS", "")
    found = _present(Path(assets)) if assets else {}
    missing = [each for each in PROGRAMS if each not in found]
    if missing:
        folder = cache_folder(environ)
        build_missing(folder, {each: SOURCES[each] for each in missing})
        found |= {each: folder / each for each in missing}
    return found


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder for programs that are built from these go.mod and go.sum files."""
    return folder_for("controlplane", MODULES, environ)


def find_other_binaries(release: str, environ: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """Paths of the programs of another Kubernetes release that are already built, by name."""
    folder = other_folder(release, environ)
    return {each: folder / each for each in OTHER_PROGRAMS if os.access(folder / each, os.X_OK)}


def build_other_binaries(release: str, environ: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """Paths of all programs in `OTHER_PROGRAMS`; builds missing ones, which takes minutes."""
    build_missing(other_folder(release, environ), other_sources(release))
    return find_other_binaries(release, environ)


def other_folder(release: str, environ: Mapping[str, str] = os.environ) -> Path:
    """The cache folder for programs of another Kubernetes release."""
    return folder_for("releases", OTHER_MODULES / release, environ)


def modules_digest(modules: Path) -> str:
    """SHA-256 of the names and contents of go.mod and go.sum files and of our own sources."""
    digest = hashlib.sha256()
    for file in sorted((*modules.glob("*/go.*"), *modules.glob("*/*.go"))):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(modules)} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def folder_for(name: str, modules: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """The cache folder for programs that are built from these pinned Go modules."""
    return cache_base(environ) / name / modules_digest(modules)


def cache_base(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of everything that is built or fetched once for the tests."""
    base = environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "ballast"


def _present(folder: Path) -> dict[str, Path]:
    return {each: folder / each for each in PROGRAMS if os.access(folder / each, os.X_OK)}
