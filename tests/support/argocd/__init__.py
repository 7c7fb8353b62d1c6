"""Argo CD, with its CRDs. It needs redis-server, git and gpg (Debian packages) on the machine."""

import shutil
from pathlib import Path
from typing import Final

from tests.support.controlplane.builder import Source
from tests.support.controlplane.programs import Programs

MODULES: Final = Path(__file__).with_name("modules")
MODULE: Final = "github.com/argoproj/argo-cd/v3"
PROGRAM: Final = "argocd"
_SOURCE: Final = Source(MODULES / "argocd", f"{MODULE}/cmd")
PROGRAMS: Final = Programs("argocd", MODULES, {PROGRAM: _SOURCE})
#: Programs of the machine that Argo CD runs with.
BESIDE: Final = ("redis-server", "git", "gpg")


def is_here() -> bool:
    """Whether it is built, and what it runs with is installed."""
    return PROGRAMS.has() and all(map(shutil.which, BESIDE))


def wrapper() -> Path:
    """The script that Argo CD runs to look for a commit's signature, from the same module."""
    return PROGRAMS.source_of("argocd", MODULE) / "hack" / "git-verify-wrapper.sh"


def definitions() -> list[Path]:
    """The files with the CRDs of Applications and projects, from the same module."""
    folder = PROGRAMS.source_of("argocd", MODULE) / "manifests" / "crds"
    return [folder / "application-crd.yaml", folder / "appproject-crd.yaml"]
