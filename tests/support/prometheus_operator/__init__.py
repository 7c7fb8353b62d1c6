"""The Prometheus operator with its CRDs, and a promtool that discovers targets of Kubernetes."""

from pathlib import Path
from typing import Final

from tests.support.controlplane.builder import Source
from tests.support.controlplane.programs import Programs

MODULES: Final = Path(__file__).with_name("modules")
MODULE: Final = "github.com/prometheus-operator/prometheus-operator"
OPERATOR: Final = "operator"
#: Debian's has no discovery in Kubernetes.
PROMTOOL: Final = "promtool"
PROGRAMS: Final = Programs(
    "prometheus-operator",
    MODULES,
    {
        OPERATOR: Source(MODULES / OPERATOR, f"{MODULE}/cmd/operator"),
        PROMTOOL: Source(MODULES / PROMTOOL, "github.com/prometheus/prometheus/cmd/promtool"),
    },
)


def kinds() -> list[Path]:
    """The files of the operator's CRDs, from the same module."""
    folder = PROGRAMS.source_of(OPERATOR, MODULE) / "example" / "prometheus-operator-crd"
    return sorted(folder.glob("*.yaml"))
