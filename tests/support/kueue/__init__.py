"""Kueue, and its manifests."""

import subprocess
from functools import cache
from pathlib import Path
from typing import Final

from tests.support.controlplane.binaries import find_binaries
from tests.support.controlplane.builder import Source
from tests.support.controlplane.programs import Programs

MODULES: Final = Path(__file__).with_name("modules")
MODULE: Final = "sigs.k8s.io/kueue"
SOURCES: Final = {"kueue": Source(MODULES / "kueue", f"{MODULE}/cmd/kueue")}
PROGRAMS: Final = Programs("kueue", MODULES, SOURCES)


@cache
def manifests() -> str:
    """Kueue's own manifests, rendered from the same module."""
    source = PROGRAMS.source_of("kueue", MODULE) / "config" / "default"
    command = [str(find_binaries()["kubectl"]), "kustomize", str(source)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout
