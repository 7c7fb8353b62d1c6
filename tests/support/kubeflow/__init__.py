"""Kubeflow's operators, built once from their pinned Go modules into a cache outside the tree."""

import os
from pathlib import Path
from typing import Final

from tests.support.controllers import Parts
from tests.support.controlplane.binaries import folder_for
from tests.support.controlplane.builder import Source, build_missing, module_folder

MODULES: Final = Path(__file__).with_name("modules")
TRAINING: Final = "training-operator"
MPI: Final = "mpi-operator"
TRAINER: Final = "trainer"
#: Why tests are skipped without them.
NOT_BUILT: Final = "no Kubeflow operators: make kubeflow builds them"
PATHS: Final = {
    TRAINING: "github.com/kubeflow/training-operator",
    MPI: "github.com/kubeflow/mpi-operator",
    TRAINER: "github.com/kubeflow/trainer/v2",
}
SOURCES: Final = {
    TRAINING: Source(MODULES / TRAINING, "."),
    MPI: Source(MODULES / MPI, "."),
    TRAINER: Source(MODULES / TRAINER, f"{PATHS[TRAINER]}/cmd/trainer-controller-manager"),
}


def program(name: str) -> Path:
    """Path of the program, which may not be built yet."""
    return folder_for("kubeflow", MODULES) / name


def is_built(name: str) -> bool:
    """Whether the program is built."""
    return os.access(program(name), os.X_OK)


def build() -> Path:
    """The folder of all programs; missing ones are built (some minutes)."""
    folder = folder_for("kubeflow", MODULES)
    build_missing(folder, SOURCES)
    return folder


def manifests(name: str) -> Path:
    """The folder with the program's own manifests, from the same module."""
    return _module(name, PATHS[name]) / "manifests" / "base"


def pod_groups() -> Path:
    """The CRD of the groups that the training operator creates for other schedulers."""
    crds = _module(TRAINING, "sigs.k8s.io/scheduler-plugins") / "config" / "crd" / "bases"
    return crds / "scheduling.x-k8s.io_podgroups.yaml"


def trainer_parts() -> Parts:
    """The controller of Kubeflow Trainer, with its own manifests."""
    base = manifests(TRAINER)
    return Parts(
        name=TRAINER,
        program=program(TRAINER),
        kinds=sorted((base / "crds").glob("trainer.kubeflow.org_*.yaml")),
        webhooks=base / "webhook" / "manifests.yaml",
        config_group="config.trainer.kubeflow.org",
        is_of_sigs=False,
    )


def _module(name: str, path: str) -> Path:
    return module_folder(MODULES / name, path, program(name).parents[2])
