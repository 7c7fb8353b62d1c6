"""The node's programs: given by $BALLAST_NODE_BIN, or built once from pinned Go modules.

The same way as the control plane's: a cache folder keyed by the go.mod and go.sum files, one
builder at a time, whole files or none. runc and the CNI plugins are the distribution's.
"""

import fcntl
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.support.controlplane.binaries import modules_digest
from tests.support.controlplane.builder import BUILD_TIMEOUT_S, link_flags
from tests.support.controlplane.process import ControlPlaneError
from tests.support.controlplane.toolchain import find_go

MODULES = Path(__file__).with_name("modules")
#: Program: the folder of its go.mod, its package.
SOURCES = {
    "containerd": ("containerd", "github.com/containerd/containerd/v2/cmd/containerd"),
    "containerd-shim-runc-v2": (
        "containerd",
        "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
    ),
    "ctr": ("containerd", "github.com/containerd/containerd/v2/cmd/ctr"),
    "kubelet": ("kubernetes", "k8s.io/kubernetes/cmd/kubelet"),
    "kube-proxy": ("kubernetes", "k8s.io/kubernetes/cmd/kube-proxy"),
}


def programs_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the programs are, or will be once they are built."""
    given = environ.get("BALLAST_NODE_BIN", "")
    base = environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(given) if given else Path(base) / "ballast" / "node" / modules_digest(MODULES)


def missing_programs(folder: Path) -> list[str]:
    """Those of the node's programs that a folder lacks."""
    return [each for each in SOURCES if not os.access(folder / each, os.X_OK)]


def find_node_binaries(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder that holds every program of `SOURCES`; builds what is missing (minutes)."""
    folder = programs_folder(environ)
    if environ.get("BALLAST_NODE_BIN", ""):
        if missing := missing_programs(folder):
            raise ControlPlaneError(
                f"BALLAST_NODE_BIN={folder}: has no {', '.join(missing)}; "
                "add them, or unset it to have them built"
            )
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for program in missing_programs(folder):
            _build(find_go(folder.parent.parent / "controlplane"), program, folder)
    return folder


def _build(go: Path, program: str, folder: Path) -> None:
    module, package = SOURCES[program]
    env = os.environ | {
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    started = time.monotonic()
    print(f"building {program} with {go} ...", end=" ", flush=True)
    # Inside the cache folder, so that the rename stays within one file system.
    with tempfile.TemporaryDirectory(dir=folder, prefix=".partial-") as partial:
        target = Path(partial) / program
        command = [str(go), "build", "-trimpath", "-buildvcs=false"]
        command += ["-ldflags", link_flags(), "-o", str(target), package]
        done = subprocess.run(
            command,
            cwd=MODULES / module,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            words = "\n".join(done.stdout.splitlines()[-20:])
            raise ControlPlaneError(f"building {program} failed:\n{words}")
        target.rename(folder / program)
    print(f"{time.monotonic() - started:.0f} s", flush=True)
