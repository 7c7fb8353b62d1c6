"""kube-router, of which a real node runs only the part that enforces network policies."""

from pathlib import Path
from typing import Final

from tests.support.controlplane.builder import Source
from tests.support.controlplane.programs import Programs

MODULES: Final = Path(__file__).with_name("modules")
PACKAGE: Final = "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"
PROGRAM: Final = "kube-router"
PROGRAMS: Final = Programs(PROGRAM, MODULES, {PROGRAM: Source(MODULES / PROGRAM, PACKAGE)})
