"""LeaderWorkerSet's controller, built once from its pinned Go module into a cache."""

import os
from pathlib import Path
from typing import Final

from tests.support.controllers import Parts
from tests.support.controlplane.binaries import folder_for
from tests.support.controlplane.builder import Source, build_missing, module_folder

MODULES: Final = Path(__file__).with_name("modules")
SOURCES: Final = {"lws": Source(MODULES / "lws", "sigs.k8s.io/lws/cmd")}


def lws_path() -> Path:
    """Path of the program, which may not be built yet."""
    return folder_for("lws", MODULES) / "lws"


def is_built() -> bool:
    """Whether the program is built."""
    return os.access(lws_path(), os.X_OK)


def build() -> Path:
    """The program, built if it is missing (some minutes)."""
    path = lws_path()
    build_missing(path.parent, SOURCES)
    return path


def parts() -> Parts:
    """The controller, with its own manifests from the same module."""
    module = module_folder(MODULES / "lws", "sigs.k8s.io/lws", lws_path().parents[2])
    return Parts(
        name="lws",
        program=lws_path(),
        kinds=sorted(module.glob("config/crd/bases/*.yaml")),
        webhooks=module / "config" / "webhook" / "manifests.yaml",
        config_group="config.lws.x-k8s.io",
        pod_label="leaderworkerset.sigs.k8s.io/name",
    )
