"""Containers without a container runtime: a folder each, from which programs load our libraries."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpu_shim.arbiter.container import ContainerCard
from gpu_shim.cases import worker
from gpu_shim.home import furnish, preloaded, socket_path


class NoGpuError(Exception):
    """There is no GPU to run on."""


@dataclass(slots=True, frozen=True)
class Containers:
    """Folders in `place`, with our libraries from `libraries`.

    `driver` is the folder of the driver to run on; None is the machine's own.
    """

    place: Path
    libraries: Path
    driver: Path | None = None

    def make(self, name: str, cards: Sequence[ContainerCard]) -> Path:
        """Create a container's folder; returns the socket to which its programs connect."""
        home = self.place / name
        furnish(home, self.libraries, cards)
        return socket_path(home)

    def environment(self, name: str = "") -> dict[str, str]:
        """The environment of a program in a container; without a name, outside of all."""
        found = dict(os.environ)
        if self.driver is not None:
            found["LD_LIBRARY_PATH"] = str(self.driver)
        if name:
            found["LD_PRELOAD"] = " ".join(preloaded(self.place / name))
        return found

    def uuid(self) -> str:
        """The UUID of the driver's first card; raises NoGpuError if there is none."""
        command = [sys.executable, "-I", str(worker.__file__), "uuid"]
        done = subprocess.run(  # noqa: S603
            command, env=self.environment(), capture_output=True, text=True, check=False
        )
        if done.returncode:
            where = f"the driver in {self.driver}" if self.driver else "this machine"
            raise NoGpuError(f"{where} has no GPU to run on")
        return done.stdout.strip()
