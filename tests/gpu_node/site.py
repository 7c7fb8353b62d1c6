"""A control plane and one node with a real GPU, as NVIDIA's operator prepares nodes.

NVIDIA's device plugin runs on the node and delivers by CDI, with the specification that it writes;
its container runtime is there as the runtime class `nvidia`, and not the default. The labels are
those of GPU feature discovery. The driver's files lie where its packages install them.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.e2e.site import Manifest, Site, holder_image, scheduler_image
from tests.gpu_node.image import write_pytorch_image
from tests.support.node import NodeControlPlane, NodeOptions, RealNode
from tests.support.node.binaries import find_node_binaries

NODE: Final = "gpu-0"
#: Where the driver is a file system of its own on some virtual machines.
DRIVER_MOUNT: Final = "/usr/local/nvidia"
#: What its packages would have done; the node alone sees it.
_INSTALL: Final = f"""
set -e
folder=$(dirname "$(readlink -f {DRIVER_MOUNT}/lib64/libcuda.so.1)")
cp -a "$folder"/lib*.so* /usr/lib/x86_64-linux-gnu/
cp {DRIVER_MOUNT}/bin/nvidia-smi /usr/local/bin/
umount {DRIVER_MOUNT}
ldconfig
"""
RUNTIME_CLASS: Final[Manifest] = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "nvidia"},
    "handler": "nvidia",
}
PLUGIN: Final = "nvidia-device-plugin"


@contextmanager
def gpu_site(ballast: Path, logs: Path) -> Iterator[Site]:
    """The cluster, with all images on its node; its logs are copied to `logs` at the end."""
    programs = find_node_binaries()
    plane = NodeControlPlane()
    plane.start()
    is_mounted = Path(DRIVER_MOUNT).is_mount()
    options = NodeOptions(
        NODE,
        labels=_labels(),
        mounts=(DRIVER_MOUNT,) if is_mounted else (),
        runtimes={"nvidia": programs / "nvidia-container-runtime"},
    )
    node = RealNode(plane, options)
    site = Site(plane.program("kubectl"), plane.kubeconfig, node, plane)
    try:
        plane.start_scheduler()
        node.start()
        if is_mounted:
            node.run("sh", "-c", _INSTALL)
        for archive in (ballast, scheduler_image(plane), holder_image(plane.work)):
            node.import_image(archive)
        node.import_image(write_pytorch_image(plane.work))
        site.apply(RUNTIME_CLASS)
        node.start_program(programs / PLUGIN, *_plugin_flags(programs))
        yield site
    finally:
        _copy_logs(plane.logs, logs)
        node.stop()
        plane.stop()


def query(what: str) -> str:
    """What nvidia-smi says of the first card, outside of any container."""
    command = ["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)
    return done.stdout.splitlines()[0].strip()


def _labels() -> dict[str, str]:
    return {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.count": "1",
        "nvidia.com/gpu.memory": query("memory.total"),
        "nvidia.com/gpu.product": query("name").replace(" ", "-"),
    }


def _plugin_flags(programs: Path) -> list[str]:
    """As the operator sets it up where containers get devices by CDI."""
    return [
        "--device-list-strategy=cdi-cri",
        "--device-id-strategy=uuid",
        "--mig-strategy=none",
        "--driver-root-ctr-path=/",
        f"--nvidia-cdi-hook-path={programs / 'nvidia-cdi-hook'}",
    ]


def _copy_logs(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for path in source.rglob("*.log"):
        (target / path.name).write_bytes(path.read_bytes()[-(1 << 20) :])
