"""Programs of other projects from PyPI, installed once into a cache outside the tree.

Each has a virtual environment of its own, from a file with the versions of all its packages. The
file has no hashes: PyPI never replaces a release, and these programs run in tests only.
"""

import hashlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.controlplane.binaries import cache_base

INSTALL_TIMEOUT_S: Final = 1800.0


@dataclass(frozen=True, slots=True)
class Packages:
    """The packages that a package of `tests.support` installs.

    `name` is that of the folder in the cache; `lock` is a file for pip.
    """

    name: str
    lock: Path

    @property
    def folder(self) -> Path:
        """The virtual environment, which may not exist yet."""
        digest = hashlib.sha256(self.lock.read_bytes()).hexdigest()
        return cache_base() / self.name / digest

    def path(self, program: str) -> Path:
        """Path of a program, which may not be installed yet."""
        return self.folder / "bin" / program

    def has(self) -> bool:
        """Whether they are installed."""
        return (self.folder / "complete").exists()

    def build(self) -> Path:
        """The virtual environment; installs the packages unless they are there."""
        folder = self.folder
        if not self.has():
            print(f"installing {self.name} into {folder}", flush=True)
            _run(sys.executable, "-m", "venv", "--clear", str(folder))
            pip = str(folder / "bin" / "pip")
            # Nothing but what is listed, whatever the packages themselves ask for.
            flags = "--quiet", "--disable-pip-version-check", "--no-deps"
            _run(pip, "install", *flags, "-r", str(self.lock))
            (folder / "complete").touch()
        return folder


def _run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=INSTALL_TIMEOUT_S)
