"""The descheduler of kubernetes-sigs."""

from pathlib import Path
from typing import Final

from tests.support.controlplane.builder import Source
from tests.support.controlplane.programs import Programs

MODULES: Final = Path(__file__).with_name("modules")
PROGRAM: Final = "descheduler"
SOURCES: Final = {PROGRAM: Source(MODULES / PROGRAM, "sigs.k8s.io/descheduler/cmd/descheduler")}
PROGRAMS: Final = Programs(PROGRAM, MODULES, SOURCES)
