"""Kubernetes' example of a DRA driver.

It publishes simulated cards, and gives a container an environment variable for each.
"""

from pathlib import Path
from typing import Final

from tests.support.controlplane.builder import Source
from tests.support.controlplane.programs import Programs

MODULES: Final = Path(__file__).with_name("modules")
PROGRAM: Final = "dra-example-kubeletplugin"
SOURCES: Final = {
    PROGRAM: Source(MODULES / "driver", f"sigs.k8s.io/dra-example-driver/cmd/{PROGRAM}"),
}
PROGRAMS: Final = Programs("dra", MODULES, SOURCES)


def driver_flags(node: str, kubeconfig: str, n_devices: int) -> list[str]:
    """Flags of the driver on a node, with the default paths of kubelet and containerd."""
    return [
        f"--node-name={node}",
        f"--kubeconfig={kubeconfig}",
        f"--num-devices={n_devices}",
        "--cdi-root=/var/run/cdi",
    ]
