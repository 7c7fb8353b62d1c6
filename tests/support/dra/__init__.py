"""Kubernetes' example of a DRA driver, built once from its pinned Go module.

It publishes simulated cards, and gives a container an environment variable for each.
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
    """The folder of the program, which may not be built yet."""
    return folder_for("dra", MODULES)


def is_built() -> bool:
    """Whether the program is built."""
    return os.access(folder() / PROGRAM, os.X_OK)


def build() -> Path:
    """The program, built if it is missing (two minutes)."""
    build_missing(folder(), SOURCES)
    return folder() / PROGRAM


def driver_flags(node: str, kubeconfig: str, n_devices: int) -> list[str]:
    """Flags of the driver on a node, with the default paths of kubelet and containerd."""
    return [
        f"--node-name={node}",
        f"--kubeconfig={kubeconfig}",
        f"--num-devices={n_devices}",
        "--cdi-root=/var/run/cdi",
    ]
