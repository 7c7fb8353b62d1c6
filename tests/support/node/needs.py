"""The requirements of a real node, and messages for those that this machine does not meet."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

#: Program -> its Debian package.
PROGRAMS = {
    "ip": "iproute2",
    "mount": "mount",
    "nft": "nftables",
    "nsenter": "util-linux",
    "runc": "runc",
    "unshare": "util-linux",
}
#: Folders in which distributions install the CNI plugins.
PLUGIN_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"), Path("/usr/libexec/cni"))
PLUGINS = ("host-local", "loopback", "ptp")
NAMESPACES = ("--net", "--mount", "--pid", "--fork", "--mount-proc")
PROBE_TIMEOUT_S = 20.0


def missing_needs() -> list[str]:
    """One sentence per requirement that this machine does not meet; empty if a node can run."""
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
    if not missing and not _can_mount_overlay():
        missing.append(f"no overlay file system over {tempfile.gettempdir()}; set TMPDIR to a disk")
    return missing


def plugin_folder() -> Path | None:
    """The folder with all CNI plugins that are used, $BALLAST_CNI_BIN first; None if none has."""
    given = os.environ.get("BALLAST_CNI_BIN", "")
    for folder in (Path(given),) if given else PLUGIN_FOLDERS:
        if all((folder / plugin).exists() for plugin in PLUGINS):
            return folder
    return None


def _may_unshare() -> bool:
    return _succeeds("unshare", *NAMESPACES, "true")


def _can_mount_overlay() -> bool:
    """Whether an overlay file system can be mounted with its upper folder in the temporary one."""
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
