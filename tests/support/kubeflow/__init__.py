"""Kubeflow's operators."""

from pathlib import Path
from typing import Final

from tests.support.controllers import Parts
from tests.support.controlplane.builder import Source
from tests.support.controlplane.programs import Programs

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
PROGRAMS: Final = Programs("kubeflow", MODULES, SOURCES)


def manifests(name: str) -> Path:
    """The folder with the program's own manifests, from the same module."""
    return PROGRAMS.source_of(name, PATHS[name]) / "manifests" / "base"


def pod_groups() -> Path:
    """The CRD of the groups that the training operator creates for other schedulers."""
    crds = (
        PROGRAMS.source_of(TRAINING, "sigs.k8s.io/scheduler-plugins") / "config" / "crd" / "bases"
    )
    return crds / "scheduling.x-k8s.io_podgroups.yaml"


def trainer_parts() -> Parts:
    """The controller of Kubeflow Trainer, with its own manifests."""
    base = manifests(TRAINER)
    return Parts(
        name=TRAINER,
        program=PROGRAMS.path(TRAINER),
        kinds=sorted((base / "crds").glob("trainer.kubeflow.org_*.yaml")),
        webhooks=base / "webhook" / "manifests.yaml",
        config_group="config.trainer.kubeflow.org",
        is_of_sigs=False,
    )
