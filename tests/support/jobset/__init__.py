"""JobSet's controller."""

from pathlib import Path
from typing import Final

from tests.support.controllers import Parts
from tests.support.controlplane.builder import Source
from tests.support.controlplane.programs import Programs

MODULES: Final = Path(__file__).with_name("modules")
MODULE: Final = "sigs.k8s.io/jobset"
PROGRAMS: Final = Programs("jobset", MODULES, {"jobset": Source(MODULES / "jobset", MODULE)})


def parts() -> Parts:
    """The controller, with its own manifests from the same module."""
    components = PROGRAMS.source_of("jobset", MODULE) / "config" / "components"
    return Parts(
        name="jobset",
        program=PROGRAMS.path("jobset"),
        kinds=sorted((components / "crd" / "bases").glob("*.yaml")),
        webhooks=components / "webhook" / "manifests.yaml",
        config_group="config.jobset.x-k8s.io",
        pod_label="jobset.sigs.k8s.io/jobset-name",
    )
