"""Kyverno's admission controller, with its CRDs and the settings of its Helm chart."""

from pathlib import Path
from typing import Final

from tests.support.controlplane.builder import Source
from tests.support.controlplane.programs import Programs

MODULES: Final = Path(__file__).with_name("modules")
MODULE: Final = "github.com/kyverno/kyverno"
PROGRAM: Final = "kyverno"
PROGRAMS: Final = Programs(
    PROGRAM, MODULES, {PROGRAM: Source(MODULES / PROGRAM, f"{MODULE}/cmd/{PROGRAM}")}
)


def kinds() -> list[Path]:
    """The files with its CRDs, from the same module."""
    return sorted((_sources() / "config" / "crds").rglob("*.yaml"))


def values() -> Path:
    """The file with the settings of its Helm chart, from the same module."""
    return _sources() / "charts" / "kyverno" / "values.yaml"


def _sources() -> Path:
    return PROGRAMS.source_of(PROGRAM, MODULE)
