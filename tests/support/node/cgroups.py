"""The node's own branch of the machine's control groups, removed when the node stops.

Supports version 1 (a tree per controller) and version 2 (one tree). Empty branches of killed runs
are removed at the next start.
"""

import contextlib
import os
import time
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
PREFIX = "ballast-node-"
REMOVE_S = 10.0
POLL_S = 0.05


def make_branch(ix: int) -> str:
    """Create the branch of this process's node `ix` in every tree; returns its path (`/name`)."""
    _sweep()
    name = f"{PREFIX}{os.getpid()}-{ix}"
    for tree in _trees():
        branch = tree / name
        branch.mkdir(exist_ok=True)
        if (tree / "cgroup.controllers").exists():
            _delegate(tree)
        for setting in ("cpuset.cpus", "cpuset.mems"):
            if (tree / setting).exists() and (branch / setting).exists():
                (branch / setting).write_text((tree / setting).read_text())
    return f"/{name}"


def remove_branch(path: str) -> bool:
    """Remove the branch from all trees; False if a process in it did not end in time."""
    deadline = time.monotonic() + REMOVE_S
    name = path.strip("/")
    while True:
        left = [tree / name for tree in _trees() if not _is_removed(tree / name)]
        if not left:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)


def _trees() -> list[Path]:
    """The mounted trees: folders with a file `cgroup.procs`."""
    if (ROOT / "cgroup.controllers").exists():
        return [ROOT]
    candidates = (each for each in sorted(ROOT.iterdir()) if not each.is_symlink())
    return [each for each in candidates if (each / "cgroup.procs").exists()]


def _delegate(tree: Path) -> None:
    """Enable all controllers of a version 2 tree for its branches; refusals are ignored."""
    for controller in (tree / "cgroup.controllers").read_text().split():
        with contextlib.suppress(OSError):
            (tree / "cgroup.subtree_control").write_text(f"+{controller}")


def _is_removed(branch: Path) -> bool:
    if not branch.exists():
        return True
    for folder, _, _ in os.walk(branch, topdown=False):
        with contextlib.suppress(OSError):
            Path(folder).rmdir()
    return not branch.exists()


def _sweep() -> None:
    for tree in _trees():
        for branch in tree.glob(f"{PREFIX}*"):
            pid = branch.name.removeprefix(PREFIX).partition("-")[0]
            if not Path("/proc", pid).exists():
                _is_removed(branch)
