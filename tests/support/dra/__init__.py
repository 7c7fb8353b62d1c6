"""Kubernetes' example of a DRA driver, built once from its pinned Go module.

It publishes cards that are not there, and gives a container an environment variable for each.
"""

import os
from pathlib import Path
from typing import Final

from tests.support.controlplane.binaries import folder_for
from tests.support.controlplane.builder import Source, build_missing

MODULES: Final = Path(__file__).with_name("modules")
PROGRAM: Final = "dra-example-kubeletplugin"
SOURCES: Final = {
    PROGRAM: Source(MODULES / "driver", f"sigs.k8s.io/dra-example-driver/cmd/{PROGRAM}"),
}


def folder() -> Path:
    """Where the program is, or will be once it is built."""
    return folder_for("dra", MODULES)


def is_built() -> bool:
    """Whether the program is there."""
    return os.access(folder() / PROGRAM, os.X_OK)


def build() -> Path:
    """The program; it is built where it is missing, in two minutes."""
    build_missing(folder(), SOURCES)
    return folder() / PROGRAM


def driver_flags(node: str, kubeconfig: str, n_devices: int) -> list[str]:
    """How the driver of a node is started; the paths are kubelet's and containerd's usual ones."""
    return [
        f"--node-name={node}",
        f"--kubeconfig={kubeconfig}",
        f"--num-devices={n_devices}",
        "--cdi-root=/var/run/cdi",
    ]
