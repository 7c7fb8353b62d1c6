"""The controller of Tekton Pipelines, with its manifests."""

from pathlib import Path
from typing import Final

from tests.support.controlplane.builder import Source
from tests.support.controlplane.programs import Programs

MODULES: Final = Path(__file__).with_name("modules")
MODULE: Final = "github.com/tektoncd/pipeline"
PROGRAM: Final = "controller"
SOURCES: Final = {PROGRAM: Source(MODULES / "tekton", f"{MODULE}/cmd/{PROGRAM}")}
PROGRAMS: Final = Programs("tekton", MODULES, SOURCES)


def manifests() -> Path:
    """The folder with its kinds and its settings, from the same module."""
    return PROGRAMS.source_of("tekton", MODULE) / "config"
