"""The node's programs: given by $BALLAST_NODE_BIN, or built once from pinned Go modules.

They are built like the control plane's: in a cache folder keyed by the go.mod and go.sum files, by
one builder at a time, and renamed into place once complete. runc and the CNI plugins are the
distribution's.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from tests.support.controlplane.binaries import folder_for
from tests.support.controlplane.builder import Source, build_missing
from tests.support.controlplane.process import ControlPlaneError

MODULES = Path(__file__).with_name("modules")
_CONTAINERD = "github.com/containerd/containerd/v2/cmd"
SOURCES = {
    "containerd": Source(MODULES / "containerd", f"{_CONTAINERD}/containerd"),
    "containerd-shim-runc-v2": Source(
        MODULES / "containerd", f"{_CONTAINERD}/containerd-shim-runc-v2"
    ),
    "ctr": Source(MODULES / "containerd", f"{_CONTAINERD}/ctr"),
    "kubelet": Source(MODULES / "kubernetes", "k8s.io/kubernetes/cmd/kubelet"),
    "kube-proxy": Source(MODULES / "kubernetes", "k8s.io/kubernetes/cmd/kube-proxy"),
}


def programs_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the programs, which may not be built yet."""
    given = environ.get("BALLAST_NODE_BIN", "")
    return Path(given) if given else folder_for("node", MODULES, environ)


def missing_programs(folder: Path) -> list[str]:
    """The node's programs that are missing in a folder."""
    return [each for each in SOURCES if not os.access(folder / each, os.X_OK)]


def find_node_binaries(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder with all programs of `SOURCES`; builds missing ones (minutes)."""
    folder = programs_folder(environ)
    if environ.get("BALLAST_NODE_BIN", ""):
        if missing := missing_programs(folder):
            raise ControlPlaneError(
                f"BALLAST_NODE_BIN={folder}: has no {', '.join(missing)}; "
                "add them, or unset it to have them built"
            )
        return folder
    build_missing(folder, SOURCES)
    return folder
