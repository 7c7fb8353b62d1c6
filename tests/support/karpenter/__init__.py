"""Karpenter with its kwok provider, built once from its pinned Go module into a cache.

The provider makes Node objects, and kwok plays the machines. Karpenter's own definitions come from
the same module.
"""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.support.controlplane.binaries import modules_digest
from tests.support.controlplane.builder import Source, build_missing
from tests.support.controlplane.toolchain import find_go

MODULES: Final = Path(__file__).with_name("modules")
FETCH_S: Final = 120.0
SOURCES: Final = {"karpenter": Source(MODULES / "karpenter", "sigs.k8s.io/karpenter/kwok")}


def karpenter_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the program is, or will be once it is built."""
    base = environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "ballast" / "karpenter" / modules_digest(MODULES) / "karpenter"


def build() -> Path:
    """The program, built if it is missing (some minutes)."""
    path = karpenter_path()
    build_missing(path.parent, SOURCES)
    return path


def definitions() -> list[Path]:
    """The files with the kinds of Karpenter and of its kwok provider, out of the same module."""
    folder = _module_folder()
    return sorted((*folder.glob("pkg/apis/crds/*.yaml"), *folder.glob("kwok/apis/crds/*.yaml")))


def _module_folder() -> Path:
    go = find_go(karpenter_path().parents[2] / "controlplane")
    done = subprocess.run(
        [str(go), "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/karpenter"],
        cwd=MODULES / "karpenter",
        env=os.environ | {"GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local", "GOWORK": "off"},
        capture_output=True,
        text=True,
        timeout=FETCH_S,
        check=True,
    )
    return Path(done.stdout.strip())
