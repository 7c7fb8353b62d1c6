"""KubeRay's operator."""

from pathlib import Path
from typing import Final

from tests.support.controlplane.builder import Source
from tests.support.controlplane.programs import Programs

MODULES: Final = Path(__file__).with_name("modules")
MODULE: Final = "github.com/ray-project/kuberay/ray-operator"
PROGRAMS: Final = Programs("kuberay", MODULES, {"kuberay": Source(MODULES / "kuberay", MODULE)})


def definitions() -> list[Path]:
    """The files with its CRDs, from the same module."""
    bases = PROGRAMS.source_of("kuberay", MODULE) / "config" / "crd" / "bases"
    return sorted(bases.glob("*.yaml"))
