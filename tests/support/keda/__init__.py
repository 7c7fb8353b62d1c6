"""KEDA, and its manifests."""

from pathlib import Path
from typing import Final

from tests.support.controlplane.builder import Source
from tests.support.controlplane.programs import Programs

MODULES: Final = Path(__file__).with_name("modules")
MODULE: Final = "github.com/kedacore/keda/v2"
#: The operator, and the server of external.metrics.k8s.io.
SOURCES: Final = {
    "keda-operator": Source(MODULES / "keda", f"{MODULE}/cmd/operator"),
    "keda-adapter": Source(MODULES / "keda", f"{MODULE}/cmd/adapter"),
}
PROGRAMS: Final = Programs("keda", MODULES, SOURCES)


def manifests() -> Path:
    """The folder with KEDA's own manifests, from the same module."""
    return PROGRAMS.source_of("keda", MODULE) / "config"
