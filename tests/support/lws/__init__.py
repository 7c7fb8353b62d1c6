"""LeaderWorkerSet's controller."""

from pathlib import Path
from typing import Final

from tests.support.controllers import Parts
from tests.support.controlplane.builder import Source
from tests.support.controlplane.programs import Programs

MODULES: Final = Path(__file__).with_name("modules")
MODULE: Final = "sigs.k8s.io/lws"
PROGRAMS: Final = Programs("lws", MODULES, {"lws": Source(MODULES / "lws", f"{MODULE}/cmd")})


def parts() -> Parts:
    """The controller, with its own manifests from the same module."""
    config = PROGRAMS.source_of("lws", MODULE) / "config"
    return Parts(
        name="lws",
        program=PROGRAMS.path("lws"),
        kinds=sorted((config / "crd" / "bases").glob("*.yaml")),
        webhooks=config / "webhook" / "manifests.yaml",
        config_group="config.lws.x-k8s.io",
        pod_label="leaderworkerset.sigs.k8s.io/name",
    )
