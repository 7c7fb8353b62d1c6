"""Flux's kustomize-controller, with its CRD."""

from pathlib import Path
from typing import Final

from tests.support.controlplane.builder import Source
from tests.support.controlplane.programs import Programs

MODULES: Final = Path(__file__).with_name("modules")
MODULE: Final = "github.com/fluxcd/kustomize-controller"
PROGRAM: Final = "kustomize-controller"
PROGRAMS: Final = Programs("flux", MODULES, {PROGRAM: Source(MODULES / "flux", MODULE)})


def definition() -> Path:
    """The file with the CRD of Kustomizations, from the same module."""
    bases = PROGRAMS.source_of("flux", MODULE) / "config" / "crd" / "bases"
    return bases / "kustomize.toolkit.fluxcd.io_kustomizations.yaml"
