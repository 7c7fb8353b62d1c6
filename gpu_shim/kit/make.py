"""`python -m gpu_shim.kit.make DIR`: a folder for a machine without a package index.

Python sources, the packages that they import (for CPython 3.12), and the C of the compiled modules,
which the machine's own gcc compiles for its Python at the first run.
"""

import shutil
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
#: The machine's Python.
PYTHON: Final = "3.12"
#: Packages that the kit's programs import, in the versions of the lock file.
PACKAGES: Final = (
    "click", "markdown-it-py", "mdurl", "msgspec", "nvidia-ml-py", "pygments", "rich", "structlog",
)  # fmt: skip
_SOURCES: Final = ("gpu_shim", "extender/api")
_KEPT: Final = {".py", ".c", ".h", ".txt"}
_PLATFORMS: Final = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


def make(into: Path, packages: bool = True) -> int:
    """Write the folder anew; returns its size in bytes. Without `packages` nothing is fetched."""
    shutil.rmtree(into, ignore_errors=True)
    source = into / "source"
    for name in _SOURCES:
        _copy(ROOT / name, source / name)
    for module in sorted((ROOT / "gpu_shim").rglob("*.pyx")):
        _translate(module, (source / module.relative_to(ROOT)).with_suffix(".c"))
    (source / "extender" / "__init__.py").write_bytes((ROOT / "extender/__init__.py").read_bytes())
    run = into / "run"
    run.write_bytes((ROOT / "gpu_shim/kit/run.py").read_bytes())
    run.chmod(0o755)
    if packages:
        fetch(into / "packages", PACKAGES)
    return sum(path.stat().st_size for path in into.rglob("*") if path.is_file())


def _copy(source: Path, to: Path) -> None:
    for path in source.rglob("*"):
        if path.suffix in _KEPT and "__pycache__" not in path.parts and path.is_file():
            place = to / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(path.read_bytes())


def _translate(module: Path, to: Path) -> None:
    """Write a Cython module as C."""
    command = [sys.executable, "-m", "cython", "-3", str(module), "-o", str(to)]
    subprocess.run(command, cwd=ROOT, check=True)  # noqa: S603


def pins(packages: Collection[str]) -> list[str]:
    """Packages with their versions; ValueError if the lock file lacks one."""
    lock = (ROOT / "requirements.lock").read_text("utf-8").splitlines()
    found = [line.split()[0] for line in lock if line.split("==")[0] in packages]
    if len(found) != len(packages):
        raise ValueError(f"the lock file has {found} of {packages}")
    return found


def fetch(into: Path, packages: Collection[str]) -> None:
    """Install packages from the index into `into`, for the machine's Python."""
    subprocess.run(  # noqa: S603
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"),
            *("--only-binary=:all:", "--python-version", PYTHON, "--implementation", "cp"),
            *(word for each in _PLATFORMS for word in ("--platform", each)),
            *("--target", str(into), *pins(packages)),
        ],
        check=True,
    )


def main(arguments: Sequence[str]) -> None:
    """Create the folder and print its size."""
    into = Path(arguments[0])
    size = make(into)
    print(f"{into}: {size / (1 << 20):.1f} MiB; there: {into.name}/run a")


if __name__ == "__main__":
    main(sys.argv[1:])
