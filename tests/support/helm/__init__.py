"""Helm."""

from pathlib import Path
from typing import Final

from tests.support.controlplane.builder import Source
from tests.support.controlplane.programs import Programs

MODULES: Final = Path(__file__).with_name("modules")
SOURCES: Final = {"helm": Source(MODULES / "helm", "helm.sh/helm/v4/cmd/helm")}
PROGRAMS: Final = Programs("helm", MODULES, SOURCES)
