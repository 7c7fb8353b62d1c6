"""Argo's workflow-controller."""

from pathlib import Path
from typing import Final

from tests.support.controlplane.builder import Source
from tests.support.controlplane.programs import Programs

MODULES: Final = Path(__file__).with_name("modules")
MODULE: Final = "github.com/argoproj/argo-workflows/v4"
PROGRAM: Final = "workflow-controller"
SOURCES: Final = {PROGRAM: Source(MODULES / "argo", f"{MODULE}/cmd/{PROGRAM}")}
PROGRAMS: Final = Programs("argo", MODULES, SOURCES)


def definitions() -> list[Path]:
    """The files with its CRDs, from the same module."""
    bases = PROGRAMS.source_of("argo", MODULE) / "manifests" / "base" / "crds" / "minimal"
    return sorted(bases.glob("argoproj.io_*.yaml"))
