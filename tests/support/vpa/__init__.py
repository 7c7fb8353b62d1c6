"""The Vertical Pod Autoscaler's admission controller and updater, and its CRDs."""

from pathlib import Path
from typing import Final

from tests.support.controlplane.builder import Source
from tests.support.controlplane.programs import Programs

MODULES: Final = Path(__file__).with_name("modules")
MODULE: Final = "k8s.io/autoscaler/vertical-pod-autoscaler"
ADMISSION: Final = "vpa-admission-controller"
UPDATER: Final = "vpa-updater"
SOURCES: Final = {
    ADMISSION: Source(MODULES / "vpa", f"{MODULE}/pkg/admission-controller"),
    UPDATER: Source(MODULES / "vpa", f"{MODULE}/pkg/updater"),
}
PROGRAMS: Final = Programs("vpa", MODULES, SOURCES)


def definitions() -> Path:
    """The file with its CRDs, from the same module."""
    return PROGRAMS.source_of("vpa", MODULE) / "deploy" / "vpa-v1-crd-gen.yaml"
