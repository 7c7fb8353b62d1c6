"""What a machine must have to run a real node, and words for what it lacks."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

#: Program, and the Debian package it is in.
PROGRAMS = {
    "ip": "iproute2",
    "mount": "mount",
    "nft": "nftables",
    "nsenter": "util-linux",
    "runc": "runc",
    "unshare": "util-linux",
}
#: Where distributions put the CNI plugins.
PLUGIN_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"), Path("/usr/libexec/cni"))
PLUGINS = ("host-local", "loopback", "ptp")
NAMESPACES = ("--net", "--mount", "--pid", "--fork", "--mount-proc")
PROBE_TIMEOUT_S = 20.0


def missing_needs() -> list[str]:
    """One sentence per thing that this machine lacks for a real node; empty when it can run."""
    missing = []
    if os.geteuid() != 0:
        missing.append("a real node needs root, for namespaces and mounts")
    for program, package in PROGRAMS.items():
        if shutil.which(program) is None:
            missing.append(f"no program {program}; on Debian: apt-get install {package}")
    if plugin_folder() is None:
        missing.append("no CNI plugins; on Debian: apt-get install containernetworking-plugins")
    if not missing and not _may_unshare():
        missing.append("this machine refuses namespaces (unshare --net --mount --pid)")
    if not missing and not _may_lay_over():
        missing.append(f"no overlay file system over {tempfile.gettempdir()}; set TMPDIR to a disk")
    return missing


def plugin_folder() -> Path | None:
    """The folder with the CNI plugins that are used; None when no folder has all of them."""
    for folder in PLUGIN_FOLDERS:
        if all((folder / plugin).exists() for plugin in PLUGINS):
            return folder
    return None


def _may_unshare() -> bool:
    return _succeeds("unshare", *NAMESPACES, "true")


def _may_lay_over() -> bool:
    """Whether files below the folder for temporary ones can be laid over the machine's."""
    with tempfile.TemporaryDirectory() as folder:
        upper, inner = Path(folder, "upper"), Path(folder, "inner")
        upper.mkdir()
        inner.mkdir()
        layers = f"lowerdir=/etc,upperdir={upper},workdir={inner}"
        mount = ("mount", "-t", "overlay", "-o", layers, "probe", "/etc")
        return _succeeds("unshare", "--mount", "--propagation=private", *mount)


def _succeeds(*command: str) -> bool:
    try:
        done = subprocess.run(
            command, timeout=PROBE_TIMEOUT_S, check=False, stderr=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
