"""Kueue, built once from its pinned Go module, and its manifests, in a cache outside the tree."""

import os
import subprocess
from pathlib import Path
from typing import Final

from tests.support.controlplane.binaries import cache_folder, find_binaries, folder_for
from tests.support.controlplane.builder import Source, build_missing
from tests.support.controlplane.process import ControlPlaneError
from tests.support.controlplane.toolchain import find_go

MODULES: Final = Path(__file__).with_name("modules")
MODULE: Final = "sigs.k8s.io/kueue"
SOURCES: Final = {"kueue": Source(MODULES / "kueue", f"{MODULE}/cmd/kueue")}
#: Kueue's own manifests, rendered.
RENDERED: Final = "kueue.yaml"


def folder() -> Path:
    """Where the program and its manifests are, or will be once they are built."""
    return folder_for("kueue", MODULES)


def is_built() -> bool:
    """Whether the program and its manifests are there."""
    return os.access(folder() / "kueue", os.X_OK) and (folder() / RENDERED).exists()


def build() -> Path:
    """The folder with both; what is missing is built (a quarter of an hour on one core)."""
    build_missing(folder(), SOURCES)
    rendered = folder() / RENDERED
    if not rendered.exists():
        source = Path(
            _run([str(find_go(cache_folder().parent)), "list", "-m", "-f", "{{.Dir}}", MODULE])
        )
        kubectl = str(find_binaries()["kubectl"])
        text = _run([kubectl, "kustomize", str(source / "config" / "default")])
        partial = rendered.with_suffix(".partial")
        partial.write_text(text)
        partial.rename(rendered)
    return folder()


def _run(command: list[str]) -> str:
    env = os.environ | {"GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    done = subprocess.run(
        command, cwd=SOURCES["kueue"].module, env=env, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise ControlPlaneError(f"{command[0]}: {done.stderr.strip()[-2000:]}")
    return done.stdout.strip()
