"""cert-manager's controller and cainjector, with its CRDs."""

from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.controlplane.builder import Source
from tests.support.controlplane.programs import Programs

MODULES: Final = Path(__file__).with_name("modules")
MODULE: Final = "github.com/cert-manager/cert-manager"
NAME: Final = "cert-manager"
#: Its programs, as their folders are called.
CONTROLLER: Final = "controller"
CAINJECTOR: Final = "cainjector"
PROGRAMS: Final = Programs(
    NAME,
    MODULES,
    {each: Source(MODULES / NAME, f"{MODULE}/cmd/{each}") for each in (CONTROLLER, CAINJECTOR)},
)


def definitions() -> list[dict[str, Any]]:
    """Its CRDs, from the same module, without the labels that Helm fills in."""
    made = []
    for file in sorted((PROGRAMS.source_of(NAME, MODULE) / "deploy" / "crds").glob("crd-*.yaml")):
        document = yaml.safe_load(file.read_text("utf-8"))
        del document["metadata"]["labels"]
        made.append(document)
    return made
