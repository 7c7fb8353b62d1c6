"""JobSet's controller, built once from its pinned Go module into a cache outside the tree."""

import os
from pathlib import Path
from typing import Final

from tests.support.controllers import Parts
from tests.support.controlplane.binaries import folder_for
from tests.support.controlplane.builder import Source, build_missing, module_folder

MODULES: Final = Path(__file__).with_name("modules")
MODULE: Final = "sigs.k8s.io/jobset"
SOURCES: Final = {"jobset": Source(MODULES / "jobset", MODULE)}


def jobset_path() -> Path:
    """Path of the program, which may not be built yet."""
    return folder_for("jobset", MODULES) / "jobset"


def is_built() -> bool:
    """Whether the program is built."""
    return os.access(jobset_path(), os.X_OK)


def build() -> Path:
    """The program, built if it is missing (some minutes)."""
    path = jobset_path()
    build_missing(path.parent, SOURCES)
    return path


def parts() -> Parts:
    """The controller, with its own manifests from the same module."""
    manifests = module_folder(MODULES / "jobset", MODULE, jobset_path().parents[2]) / "config"
    components = manifests / "components"
    return Parts(
        name="jobset",
        program=jobset_path(),
        kinds=sorted((components / "crd" / "bases").glob("*.yaml")),
        webhooks=components / "webhook" / "manifests.yaml",
        config_group="config.jobset.x-k8s.io",
        pod_label="jobset.sigs.k8s.io/jobset-name",
    )
