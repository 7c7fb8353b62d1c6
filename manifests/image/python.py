"""What goes into the image's site folder: the locked packages by hash, and our own wheel."""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from manifests.image.debian import ImageError

#: Debian bookworm's, and therefore the one that compiles.
PYTHON: Final = "3.11"
#: Bookworm's C library.
NEWEST_GLIBC: Final = 36
NAME: Final = "ballast"
PACKAGES: Final = ("extender", "gpu_shim", "webhooks")
#: Not in the image: research.
LEFT_OUT: Final = "extender/lab"
MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
PLATFORMS: Final = ("manylinux_2_34", "manylinux_2_28", "manylinux_2_17", "manylinux2014")
TIMEOUT_S: Final = 900.0


def check_python() -> None:
    """ImageError unless this interpreter is of the release that the image has."""
    if sys.version_info[:2] != tuple(map(int, PYTHON.split("."))):
        raise ImageError(
            f"the image has Python {PYTHON}, and this is {platform.python_version()}, which "
            f"compiles for itself: make clean, then make image PYTHON=python{PYTHON}"
        )


def install_locked(site: Path, requirements: str) -> None:
    """Put the locked packages into a site folder: wheels only, each by its hash."""
    file = site.parent.parent / "requirements.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(requirements)
    machine = platform.machine()
    options = ["--require-hashes", "--only-binary=:all:", f"--python-version={PYTHON}"]
    options += ["--implementation=cp", f"--abi=cp{PYTHON.replace('.', '')}", "--abi=abi3"]
    options += ["--abi=none", *(f"--platform={each}_{machine}" for each in PLATFORMS)]
    _pip("install", *options, f"--target={site}", "-r", str(file))
    file.unlink()
    shutil.rmtree(site / "bin", ignore_errors=True)


def install_ours(root: Path, site: Path, libraries: Path, epoch_s: int) -> None:
    """Compile our wheel from the tree, put it into a site folder, and make the node's libraries."""
    check_python()
    work = site.parents[4] / "build"
    tree = work / "tree"
    for package in PACKAGES:
        shutil.copytree(
            root / package, tree / package, ignore=shutil.ignore_patterns("*.so", "__pycache__")
        )
    shutil.rmtree(tree / LEFT_OUT)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(root / name, tree / name)
    (tree / "setup.cfg").write_text(f"[build_ext]\nparallel = {os.cpu_count() or 1}\n")
    wheels = work / "wheels"
    flags = f"-O2 -g0 -ffile-prefix-map={tree}=."
    environment = {"SOURCE_DATE_EPOCH": str(epoch_s), "CFLAGS": flags, "PYTHONHASHSEED": "0"}
    _pip(
        "wheel", "--no-deps", "--no-build-isolation", f"--wheel-dir={wheels}", str(tree),
        environment=environment,
    )  # fmt: skip
    # Found by its name: of a wheel that is given as a file, pip writes down where it lay.
    # By the environment, which takes the place of links that it or a file had before.
    found = {"PIP_FIND_LINKS": str(wheels)}
    _pip("install", "--no-deps", "--no-index", f"--target={site}", NAME, environment=found)
    shutil.rmtree(site / "bin", ignore_errors=True)
    build_libraries(tree, libraries)
    shutil.rmtree(work)
    _check_glibc([*site.rglob("*.so"), *libraries.glob("*.so*")])


def build_libraries(tree: Path, libraries: Path) -> None:
    """The libraries that the node agent lays into containers; the image has no compiler."""
    _run([sys.executable, "-m", "gpu_shim.native.build", str(libraries)], tree)
    for folder in libraries.glob("*.d"):
        shutil.rmtree(folder)
    # The build's id is a hash over where the sources lay, too.
    strip = ["strip", "--strip-debug", "--remove-section=.note.gnu.build-id"]
    for library in libraries.glob("*.so*"):
        _run([*strip, str(library)], tree)


def _check_glibc(libraries: Sequence[Path]) -> None:
    for library in libraries:
        found = re.findall(rb"GLIBC_2\.(\d+)", library.read_bytes())
        if any(int(each) > NEWEST_GLIBC for each in found):
            raise ImageError(
                f"{library.name} was compiled against a newer C library than the image's 2.36: "
                "make the image on Debian bookworm, or with docker build -f Containerfile ."
            )


def _pip(*arguments: str, environment: dict[str, str] | None = None) -> None:
    command = [sys.executable, "-m", "pip", arguments[0], "--quiet", "--no-compile"]
    if arguments[0] != "install":
        command.remove("--no-compile")
    command += ["--disable-pip-version-check", *arguments[1:]]
    _run(command, None, environment)


def _run(
    command: Sequence[str], folder: Path | None, environment: dict[str, str] | None = None
) -> None:
    done = subprocess.run(  # noqa: S603
        command,
        cwd=folder,
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        words = (done.stdout + done.stderr).strip()[-2000:]
        raise ImageError(f"{' '.join(command[:6])} ... failed:\n{words}")
