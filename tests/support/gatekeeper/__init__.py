"""Gatekeeper, with its manifests."""

from pathlib import Path
from typing import Final

from tests.support.controlplane.builder import Source
from tests.support.controlplane.programs import Programs

MODULES: Final = Path(__file__).with_name("modules")
MODULE: Final = "github.com/open-policy-agent/gatekeeper/v3"
PROGRAM: Final = "gatekeeper"
PROGRAMS: Final = Programs(PROGRAM, MODULES, {PROGRAM: Source(MODULES / PROGRAM, MODULE)})


def manifests() -> Path:
    """The file with its CRDs and webhooks, from the same module."""
    return PROGRAMS.source_of(PROGRAM, MODULE) / "deploy" / "gatekeeper.yaml"
