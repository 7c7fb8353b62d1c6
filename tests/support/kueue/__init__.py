"""Kueue, built once from its pinned Go module, and its manifests, in a cache outside the tree."""

import os
import subprocess
from pathlib import Path
from typing import Final

from tests.support.controlplane.binaries import find_binaries, folder_for
from tests.support.controlplane.builder import Source, build_missing, module_folder

MODULES: Final = Path(__file__).with_name("modules")
MODULE: Final = "sigs.k8s.io/kueue"
SOURCES: Final = {"kueue": Source(MODULES / "kueue", f"{MODULE}/cmd/kueue")}
#: Kueue's own manifests, rendered.
RENDERED: Final = "kueue.yaml"


def folder() -> Path:
    """The folder of the program and its manifests, which may not be built yet."""
    return folder_for("kueue", MODULES)


def is_built() -> bool:
    """Whether the program and its manifests are built."""
    return os.access(folder() / "kueue", os.X_OK) and (folder() / RENDERED).exists()


def build() -> Path:
    """The folder with both; builds what is missing (a quarter of an hour on one core)."""
    build_missing(folder(), SOURCES)
    rendered = folder() / RENDERED
    if not rendered.exists():
        source = module_folder(MODULES / "kueue", MODULE, folder().parents[1])
        command = [str(find_binaries()["kubectl"]), "kustomize", str(source / "config" / "default")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
        partial = rendered.with_suffix(".partial")
        partial.write_text(done.stdout)
        partial.rename(rendered)
    return folder()
