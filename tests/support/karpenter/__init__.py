"""Karpenter with its kwok provider.

The provider creates Node objects, and kwok simulates the machines. Karpenter's own CRDs come from
the same module.
"""

from pathlib import Path
from typing import Final

from tests.support.controlplane.builder import Source
from tests.support.controlplane.programs import Programs

MODULES: Final = Path(__file__).with_name("modules")
MODULE: Final = "sigs.k8s.io/karpenter"
SOURCES: Final = {"karpenter": Source(MODULES / "karpenter", f"{MODULE}/kwok")}
PROGRAMS: Final = Programs("karpenter", MODULES, SOURCES)


def definitions() -> list[Path]:
    """The files with the CRDs of Karpenter and of its kwok provider, from the same module."""
    folder = PROGRAMS.source_of("karpenter", MODULE)
    return sorted((*folder.glob("pkg/apis/crds/*.yaml"), *folder.glob("kwok/apis/crds/*.yaml")))
